"""The data of public homes: every file is complete, agrees with the recipes, and names no place twice."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from envbuild.net import bootstrap_tools, public_homes
from envbuild.net.origin_kinds import ORIGIN_KINDS
from envbuild.net.public_homes import FOLDER, FOUND, Home, HomeKey, find_homes, read_homes

pytestmark = pytest.mark.unit
ROOT = Path(__file__).parents[2]
FILES = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_homes_is_complete(path: Path) -> None:
    for home in read_homes(path):
        assert home.vendor and home.contains and home.licence and home.source
        assert home.found in FOUND
        assert home.origin.partition(":")[0] in ORIGIN_KINDS
        templates = [text for text in (home.address, home.snapshot) if text]
        for text in templates:
            assert text == "{archive}" or urlsplit(text).scheme in ("https", "http"), text
            assert not text.endswith("/")
            assert set(re.findall(r"{(\w*)}", text)) <= {"archive", "domain", "time"}
        for key in home.keys:
            assert re.fullmatch("[0-9A-F]{40}", key.fingerprint)
            assert key.files and not set(key.folders) - set(home.folders)
        assert isinstance(home, Home) and all(isinstance(key, HomeKey) for key in home.keys)


def test_no_prefix_is_in_two_files() -> None:
    owners: dict[str, str] = {}
    for path in FILES:
        for home in read_homes(path):
            assert owners.setdefault(home.origin, path.name) == path.name


def test_a_misspelt_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    head = "schema: 1\nvendor: Own\ncontains: all\nlicence: none\nhomes:\n"
    path.write_text(f'{head}  - {{origin: "vendor:own", address: "https://own.example", found: vendor, source: x}}\n')
    assert read_homes(path)[0].address == "https://own.example"
    path.write_text(f'{head}  - {{origin: "vendor:own", adress: "https://own.example", found: vendor, source: x}}\n')
    with pytest.raises(TypeError):
        read_homes(path)


def test_the_home_of_an_architecture() -> None:
    (x86,), (arm,) = find_homes("ubuntu:jammy/main", "amd64"), find_homes("ubuntu:jammy/main", "arm64")
    assert "archive" in x86.address and "ports" in arm.address
    assert find_homes("ubuntu:jammy/main") == (x86, arm)
    assert find_homes("apt:nvidia-cuda/ubuntu2204/sbsa", "arm64") == find_homes("apt:nvidia-cuda/ubuntu2204/sbsa")
    assert find_homes("apt:nvidia-cuda-extra/x") == ()


def test_the_keys_of_a_folder() -> None:
    def keys(origin: str) -> list[str]:
        return [key.fingerprint[:4] for home in find_homes(origin) for key in home.signing_keys(origin)]

    assert keys("apt:nvidia-cuda/debian13/x86_64") == ["0218"]
    assert keys("apt:nvidia-cuda/debian12/x86_64") == keys("apt:nvidia-cuda/ubuntu2204/sbsa") == ["EB69"]
    assert keys("apt:nvidia-cuda/ubuntu2604/x86_64") == []  # unknown remains unknown
    assert keys("apt:nvidia-doca/3.2.1/ubuntu24.04/x86_64") == ["7045"]


@pytest.mark.parametrize(
    ("name", "text", "address"),
    [
        ("debootstrap", 'DEF_MIRROR="http://d.pool.example/debian"\nDEF_HTTPS_MIRROR="https://x/debian"\n', True),
        (
            "mmdebstrap",
            "    my $mirror    = 'http://d.pool.example/debian';\n    my $secmirror = 'http://x/y';\n",
            True,
        ),
        ("debootstrap", 'DEF_MIRROR="$1"\n', False),
    ],
)
def test_the_archive_that_a_program_names(
    name: str, text: str, address: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(bootstrap_tools, "FOLDERS", str(tmp_path))
    bootstrap_tools.archive_values.cache_clear()
    public_homes.public_homes.cache_clear()
    try:
        found = find_homes("debian:trixie/main")
        assert [home.address for home in found] == (["http://d.pool.example/debian"] if address else [])
        if address:
            assert found[0].snapshot == "https://snapshot.pool.example/archive/debian/{time}"
            (security,) = find_homes("debian-security:trixie-security/main")
            assert security.address == "http://security.pool.example/debian-security"
    finally:
        bootstrap_tools.archive_values.cache_clear()
        public_homes.public_homes.cache_clear()


def test_recipes_and_homes_name_the_same_keys_and_places() -> None:
    """The golden texts of recipes list the origins and keys of their sources."""
    text = "".join(path.read_text() for path in sorted((ROOT / "tests/golden/recipes").glob("*.txt")))
    repositories = set(
        re.findall(r"AptRepository\(origin='([^']+)', .*?key='([0-9A-F]{40})', key_file='([^']*)'", text)
    )
    assert len(repositories) > 3
    for origin, fingerprint, file in sorted(repositories):
        (home,) = find_homes(origin)
        assert not home.folders or home.rest(origin).partition("/")[0] in home.folders
        keys = {key.fingerprint: key.files for key in home.signing_keys(origin)}
        if file and "0" * 8 not in fingerprint:
            assert file in keys.get(fingerprint, ()), origin
    named = set(re.findall(r"origin='((?:apt|pip|vendor):[^']+)'", text))
    assert {origin for origin in named if not find_homes(origin)} == set()
