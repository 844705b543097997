"""Archives of sources are unpacked alike by every Python, and nothing leaves the folder."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from envbuild.build.engines.safe_extract import extract_tar
from envbuild.core import bombs
from envbuild.core.bombs import UnpackedFiles
from envbuild.core.folder_removal import discard_folder
from envbuild.core.link_walk import LINKS
from tests.support.examples import examples
from tests.support.link_chains import LENGTHS, STYLES, TOO_MANY, canary, chain, unchanged

pytestmark = pytest.mark.unit
DIR, FILE, HARD, LINK, FIFO = tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE
Entry = tuple[str, bytes, int, str]


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def archive(*entries: Entry) -> tarfile.TarFile:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, mode, link in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.linkname, info.mtime, info.uid, info.gid = kind, mode, link, 1000, 1234, 1234
            content = name.encode() if kind == FILE else b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    buffer.seek(0)
    return tarfile.open(fileobj=buffer)


def test_modes_owners_and_links(tmp_path: Path) -> None:
    modes = (0o000, 0o444, 0o644, 0o666, 0o755, 0o777, 0o4755, 0o2711, 0o011, 0o100)
    entries = [
        ("top", DIR, 0o700, ""),
        ("top/open", DIR, 0o1777, ""),
        ("implied/file", FILE, 0o644, ""),
        *((f"top/{mode:o}", FILE, mode, "") for mode in modes),
        ("top/hard", HARD, 0o755, "top/755"),
        ("top/open/link", LINK, 0o777, "../644"),
        ("/rooted", FILE, 0o644, ""),
    ]
    extract_tar(archive(*entries), tmp_path / "out", UnpackedFiles(1))
    found = {}
    for path in sorted((tmp_path / "out").rglob("*")):
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == (os.getuid(), os.getgid())
        content = hashlib.sha256(path.read_bytes()).hexdigest()[:4] if path.is_file() else ""
        mode = oct(status.st_mode & 0o7777) if not path.is_symlink() else str(path.readlink())
        found[str(path.relative_to(tmp_path / "out"))] = (mode, content)
    assert {name: mode for name, (mode, _) in found.items()} == {
        "implied": "0o755",
        "implied/file": "0o644",
        "rooted": "0o644",
        "top": "0o755",
        "top/0": "0o600",
        "top/100": "0o700",
        "top/11": "0o600",
        "top/2711": "0o711",
        "top/444": "0o644",
        "top/4755": "0o755",
        "top/644": "0o644",
        "top/666": "0o644",
        "top/755": "0o755",
        "top/777": "0o755",
        "top/hard": "0o755",
        "top/open": "0o755",
        "top/open/link": "../644",
    }
    assert found["top/hard"] == found["top/755"]


@pytest.mark.parametrize(
    "entries",
    [
        [("../out-of-it", FILE, 0o644, "")],
        [("a/../../out-of-it", FILE, 0o644, "")],
        [("link", LINK, 0o777, "/etc")],
        [("link", LINK, 0o777, "..")],
        [("a", DIR, 0o755, ""), ("a/link", LINK, 0o777, "../..")],
        [("a", LINK, 0o777, "b"), ("b", LINK, 0o777, "../out-of-it")],
        [("hard", HARD, 0o644, "../out-of-it")],
        [("hard", HARD, 0o644, "/etc/passwd")],
        [("pipe", FIFO, 0o644, "")],
    ],
)
def test_nothing_leaves_the_folder(entries: list[Entry], tmp_path: Path) -> None:
    with pytest.raises(tarfile.TarError):
        extract_tar(archive(*entries), tmp_path / "out", UnpackedFiles(1))
    assert not (tmp_path / "out-of-it").exists()


def test_links_that_are_longer_than_a_path(tmp_path: Path) -> None:
    """Python's own filter lost sight of a path of more than 4096 bytes, and wrote outside (CVE-2025-4517)."""
    outside = canary(tmp_path / "outside")
    folder, steps = "d" * 247, "abcdefghijklmnop"
    entries, path = [], ""
    for step in steps:
        entries += [(f"{path}{folder}", DIR, 0o755, ""), (f"{path}{step}", LINK, 0o777, folder)]
        path += f"{folder}/"
    way = "/".join(steps) + "/" + "l" * 254
    entries.append((way, LINK, 0o777, "../" * len(steps)))
    entries.append(("escape", LINK, 0o777, f"{way}/../../{outside.relative_to(tmp_path.parent)}"))
    for evil in (
        ("escape/pwned", FILE, 0o644, ""),
        ("stolen", HARD, 0o644, "escape/secret"),
        ("escape/new", DIR, 0o755, ""),
    ):
        with unchanged(outside), pytest.raises(tarfile.TarError):
            extract_tar(archive(*entries, evil), tmp_path / f"out-{evil[0].replace('/', '-')}", UnpackedFiles(1))


@pytest.mark.slow_unit
@given(length=LENGTHS, style=st.sampled_from(STYLES))
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(length=LINKS, style="across")
@example(length=LINKS + 1, style="across")
@example(length=LINKS, style="relative")
@example(length=LINKS + 1, style="relative")
def test_chains_of_links(tmp_path: Path, length: int, style: str) -> None:
    """Absolute links are refused, as those that lead out; what is behind more links than the kernel follows, too."""
    if not (tmp_path / "outside").exists():
        canary(tmp_path / "outside")
    links = [(name, LINK, 0o777, link) for name, link in chain(length, "../outside", style).items()]
    inside = [
        (name, LINK, 0o777, link)
        for name, link in chain(length, "real", "across" if style == "across" else "relative").items()
    ]
    with tempfile.TemporaryDirectory() as folder, unchanged(tmp_path / "outside"):
        for number, evil in enumerate((("z0/pwned", FILE, 0o644, ""), ("stolen", HARD, 0o644, "z0/secret"))):
            with pytest.raises(tarfile.TarError):
                extract_tar(archive(*links, evil), Path(folder, str(number)), UnpackedFiles(1))
        entries = [("real", DIR, 0o755, ""), *inside, ("z0/file", FILE, 0o644, "")]
        if length > LINKS:
            with pytest.raises(tarfile.TarError, match=TOO_MANY):
                extract_tar(archive(*entries), Path(folder, "inside"), UnpackedFiles(1))
        else:
            extract_tar(archive(*entries), Path(folder, "inside"), UnpackedFiles(1))
            assert Path(folder, "inside/real/file").read_text() == "z0/file"


def test_a_link_is_judged_when_all_are_there(tmp_path: Path) -> None:
    """One that leads nowhere yet leads out when its parts are made later."""
    later = [("x/y/link", LINK, 0o777, "z/.."), ("x/y/z", LINK, 0o777, "../..")]
    with pytest.raises(tarfile.TarError, match="'x/y/link' is a link that leads out of its folder"):
        extract_tar(archive(*later), tmp_path / "out", UnpackedFiles(1))
    fine = [("x/link", LINK, 0o777, "z/../../x"), ("x/z", DIR, 0o755, ""), ("loop", LINK, 0o777, "loop")]
    extract_tar(archive(*fine), tmp_path / "fine", UnpackedFiles(1))
    assert (tmp_path / "fine/x/link").resolve() == (tmp_path / "fine/x").resolve()


def test_a_link_out_of_the_single_folder_leads_out_when_that_takes_the_place_of_the_archive(tmp_path: Path) -> None:
    out = [("top/f", FILE, 0o644, ""), ("top/l", LINK, 0o777, "../secret")]
    with pytest.raises(tarfile.TarError, match="'top/l' is a link that leads out of its folder"):
        extract_tar(archive(*out), tmp_path / "out", UnpackedFiles(1))
    extract_tar(archive(*out, ("other", FILE, 0o644, "")), tmp_path / "two", UnpackedFiles(1))
    extract_tar(archive(("top/f", FILE, 0o644, ""), ("top/l", LINK, 0o777, "f")), tmp_path / "x", UnpackedFiles(1))


def test_a_second_name_of_a_link_is_judged_from_its_own_folder(tmp_path: Path) -> None:
    """A hard link to a symbolic link is a symbolic link elsewhere."""
    deep = ("top/a/b/c/l", LINK, 0o777, "../../../x")
    with pytest.raises(tarfile.TarError, match="'top/m' is a link that leads out of its folder"):
        extract_tar(archive(deep, ("top/m", HARD, 0o644, deep[0])), tmp_path / "out", UnpackedFiles(1))
    extract_tar(archive(deep, ("top/a/b/c/m", HARD, 0o644, deep[0])), tmp_path / "fine", UnpackedFiles(1))
    assert (tmp_path / "fine/top/a/b/c/m").readlink() == Path("../../../x")


def test_links_to_later_files_and_names_used_twice(tmp_path: Path) -> None:
    entries = [
        ("early", HARD, 0o755, "late"),
        ("late", FILE, 0o644, ""),
        ("real", DIR, 0o755, ""),
        ("way", LINK, 0o777, "real"),
        ("way", DIR, 0o755, ""),
        ("way/in", FILE, 0o644, ""),
        ("late", FILE, 0o600, ""),
        ("soft", LINK, 0o777, "late"),
        ("soft", LINK, 0o777, "early"),
    ]
    extract_tar(archive(*entries), tmp_path / "out", UnpackedFiles(1))
    assert (tmp_path / "out/early").read_text() == "late" and (tmp_path / "out/early").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "out/way/in").read_text() == "way/in" and not list((tmp_path / "out/real").iterdir())
    assert str((tmp_path / "out/soft").readlink()) == "early"
    with pytest.raises(tarfile.TarError, match="'a' is a link to 'nothing', which is not a file in it"):
        extract_tar(archive(("a", HARD, 0o644, "nothing")), tmp_path / "missing", UnpackedFiles(1))


def test_folders_that_only_paths_name_count_as_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bombs, "SUSPECT", 32 << 20)  # each folder is made and removed: a disk takes minutes for 1 GiB
    deep = "/".join("a" * 2000)
    members = [(f"{number}/{deep}", FILE, 0o644, "") for number in range(300)]
    with pytest.raises(ValueError, match="unpack to more than"):
        extract_tar(archive(*members), tmp_path / "out", UnpackedFiles(1))
    discard_folder(tmp_path / "out")  # too deep for shutil.rmtree
    files = UnpackedFiles(1)
    for path in ("a/b/c", "a/b/d", "a/x", "a/y/z/w", "a/y/z", "top"):
        files.add(0, path)
    assert files.total == 4096 * (6 + 2 + 2 + 0)


@pytest.mark.slow_unit
def test_links_to_a_later_file_take_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    members = tarfile.TarFile.getmembers
    monkeypatch.setattr(tarfile.TarFile, "getmembers", lambda tar: calls.append(1) or members(tar))
    entries = [(f"d/{number}", HARD, 0o644, "d/last") for number in range(50)]
    extract_tar(archive(*entries, ("d/last", FILE, 0o644, "")), tmp_path / "out", UnpackedFiles(1))
    assert len(list((tmp_path / "out/d").iterdir())) == 51 and len(calls) == 1


@pytest.mark.parametrize("target", [".", "", "d", "./d/."])
def test_a_hard_link_to_a_folder_is_refused(tmp_path: Path, target: str) -> None:
    with (
        archive(("d", DIR, 0o755, ""), ("d/f", FILE, 0o644, ""), ("h", HARD, 0o644, target)) as tar,
        pytest.raises(tarfile.TarError),
    ):
        extract_tar(tar, tmp_path / "out", UnpackedFiles(1 << 20))


def test_links_to_later_files_count_what_is_unpacked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one takes the time of the whole archive: 700 kB of gzip took hours."""
    monkeypatch.setattr(bombs, "SUSPECT", 8 << 20)
    path = tmp_path / "x.tar.gz"

    def extract(links: int) -> None:
        with tarfile.open(path, "w:gz") as tar:
            for name, kind in [*((f"link{number}", HARD) for number in range(links)), ("zeros", FILE), ("last", FILE)]:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, "last" if kind == HARD else ""
                info.size = {"zeros": 3 << 20, "last": 4}.get(name, 0)
                tar.addfile(info, io.BytesIO(bytes(info.size)))
        with tarfile.open(path) as tar:
            extract_tar(tar, tmp_path / f"out{links}", UnpackedFiles(path.stat().st_size))

    extract(1)
    assert (tmp_path / "out1/link0").read_bytes() == bytes(4)
    with pytest.raises(ValueError, match="unpack to more than"):
        extract(20)
