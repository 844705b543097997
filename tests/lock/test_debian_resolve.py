"""Debian packages resolved by the host's apt against a small signed archive."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.build.plan.debian_units import dummy_package_commands
from envbuild.core.console import SilentReporter
from envbuild.core.distributions import find_distribution
from envbuild.core.errors import ConflictError, InputError
from envbuild.core.store.store import Store
from envbuild.lock.deb822 import parse_fields
from envbuild.lock.debian import resolve as debian
from envbuild.lock.debian.apt import host_options
from envbuild.lock.debian.dummy_packages import DummyPackage
from envbuild.lock.debian.package_lists import alternatives
from envbuild.net.site import Site
from tests.support.debian_archive import RELEASED, Signer, publish, stanza
from tests.support.private_server import serve_private

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed"),
    pytest.mark.skipif(not shutil.which("gpg"), reason="gpg is not installed"),
]
TRIXIE = find_distribution("debian:13")
MAIN = (
    stanza("base-files", "13.8+deb13u7", essential=True, Pre_Depends="awk"),
    stanza("mawk", Provides="awk", Depends="libc6 (>= 2)"),
    stanza("libc6", "2.41-12+deb13u4", Depends="gcc-base"),
    stanza("gcc-base"),
    stanza("dash", essential=True, Depends="libc6"),
    stanza("apt", Depends="libc6, libstdc++6"),
    stanza("libstdc++6", "1:14.2~rc1-1"),
    stanza("openmpi-bin", "5.0", Depends="libopenmpi40 (= 5.0), libc6", Recommends="doc"),
    stanza("libopenmpi40", "5.0"),
    stanza("doc"),
    stanza("gcc", Depends="libc6-dev"),
    stanza("libc6-dev", Depends="libc6 (= 2.41-12+deb13u4)"),
    stanza("new-libc-user", Depends="libc6 (>= 3)"),
    stanza("anti-dash", Conflicts="dash"),
    stanza("openssl", "3.0-1"),
    stanza("mpi", Pre_Depends="libmpi"),
    stanza("libmpi", Depends="libucx0 (>= 1.18~), libc6"),
    stanza("libucx0", "1.18-2", Depends="libllvm17"),
    stanza("libllvm17"),
)


@pytest.fixture
def site(tmp_path: Path, key: Signer) -> Site:
    for suite, stanzas in (("trixie", MAIN), ("trixie-updates", ())):
        publish(tmp_path / "debian", suite, stanzas, key)
    publish(tmp_path / "security", "trixie-security", [stanza("openssl", "3.0-2")], key, released=RELEASED + 7)
    mirrors = {"debian:": (str(tmp_path / "debian"),), "debian-security:": (str(tmp_path / "security"),)}
    return Site(tmp_path / "store", mirrors=mirrors, use_host=False, debian_keyring=key.keyring)


def resolve(site: Site, prefer: dict[str, str] | None = None, refresh: bool = True, **units: str) -> debian.DebianLock:
    asked = {name.replace("_", "-"): tuple(names.split()) for name, names in units.items()}
    request = debian.DebianRequest(TRIXIE, "amd64", asked, prefer=prefer or {}, refresh=refresh)
    return debian.resolve(request, site, Store.open(site.store), SilentReporter())


def names(lock: debian.DebianLock, unit: str) -> list[str]:
    return [f"{file.name} {file.version}" for file in lock.units[unit]]


@pytest.mark.parametrize("place", ["debian", "security"])
def test_the_archive_of_another_release_is_refused(site: Site, tmp_path: Path, key: Signer, place: str) -> None:
    """The keys of Debian sign those, too: without its updates an image would be locked in silence."""
    suite = {"debian": "trixie-updates", "security": "trixie-security"}[place]
    dists = tmp_path / place / "dists"
    (dists / suite).rename(dists / "before")
    publish(tmp_path / place, "bookworm-x", [], key)
    (dists / "bookworm-x").rename(dists / suite)
    with pytest.raises(InputError) as caught:
        resolve(site, base="")
    assert f"{suite}: its Release file is that of bookworm-x" in f"{caught.value.findings}"


def test_base_and_units_on_top_of_it(site: Site) -> None:
    lock = resolve(site, base="", debian="openmpi-bin dash", build_x="gcc openmpi-bin", venv="")
    assert names(lock, "base") == [
        "apt 1.0",
        "base-files 13.8+deb13u7",
        "dash 1.0",
        "gcc-base 1.0",
        "libc6 2.41-12+deb13u4",
        "libstdc++6 1:14.2~rc1-1",
        "mawk 1.0",
    ]
    assert names(lock, "debian") == ["libopenmpi40 5.0", "openmpi-bin 5.0"]  # no recommends, nothing of the base again
    assert names(lock, "build-x") == ["gcc 1.0", "libc6-dev 1.0", "libopenmpi40 5.0", "openmpi-bin 5.0"]
    assert lock.units["venv"] == ()
    assert lock.released == RELEASED  # of the release, not of its security updates
    # A virtual package (awk) leads to its provider; apt and its library are unpacked first too, to install the rest.
    essential = ["apt", "base-files", "dash", "gcc-base", "libc6", "libstdc++6", "mawk"]
    assert [name.partition("_")[0] for name in lock.essential] == essential
    file = next(file for file in lock.units["base"] if file.name == "libstdc++6")
    assert file.file == "libstdc++6_14.2~rc1-1_amd64.deb"
    assert file.path == "pool/main/l/libstdc++6/libstdc++6_14.2~rc1-1_amd64.deb"
    assert (file.archive, file.size, len(file.sha256)) == ("debian:trixie/main", 1000, 64)


@pytest.mark.slow_unit
def test_the_security_archive_wins_and_a_locked_version_is_preserved(site: Site) -> None:
    newest = resolve(site, base="", debian="openssl").units["debian"][0]
    assert (newest.version, newest.archive) == ("3.0-2", "debian-security:trixie-security/main")
    kept = resolve(site, {"openssl": "3.0-1"}, base="", debian="openssl").units["debian"][0]
    assert (kept.version, kept.archive) == ("3.0-1", "debian:trixie/main")
    gone = resolve(site, {"openssl": "2.9"}, base="", debian="openssl").units["debian"][0]
    assert gone.version == "3.0-2"


@pytest.mark.slow_unit
def test_without_security_archive(site: Site) -> None:
    reporter = SilentReporter()
    alone = replace(site, mirrors={"debian:": site.mirrors["debian:"]})
    request = debian.DebianRequest(TRIXIE, "amd64", {"base": ("openssl",)})
    lock = debian.resolve(request, alone, Store.open(site.store), reporter)
    assert "openssl 3.0-1" in names(lock, "base")
    assert any("security archive" in line for line in reporter.lines)


def test_unknown_packages_are_all_named(site: Site) -> None:
    with pytest.raises(InputError) as caught:
        resolve(site, base="", debian="openmpi-bni awk", build_x="qqqqq")
    findings = [(finding.message, finding.hint) for finding in caught.value.findings]
    assert findings == [
        ("the Debian archive has no package 'openmpi-bni' (required by debian)", "did you mean 'openmpi-bin'?"),
        (
            "the Debian archive has no package 'qqqqq' (required by build-x)",
            "search for its name: apt-cache search WORD",
        ),
    ]


def test_an_unknown_run_time_package_has_the_place_of_its_layer(site: Site) -> None:
    units, where = {"base": (), "debian": ("awk", "qqqqq=1")}, {"debian-packages": "images/a.yaml:5:3"}
    with pytest.raises(InputError) as caught:
        askers = {"qqqqq=1": "debian-packages", "awk": "files"}
        request = debian.DebianRequest(TRIXIE, "amd64", units, where=where, askers=askers)
        debian.resolve(request, site, Store.open(site.store), SilentReporter())
    (finding,) = caught.value.findings
    assert finding.message == "the Debian archive has no package 'qqqqq' (required by debian-packages)"
    assert finding.where == "images/a.yaml:5:3"


def test_an_unknown_package_of_a_layer_has_its_place_and_no_unlikely_suggestion(site: Site) -> None:
    """openssl is not a misspelt openmpi: a name that only starts alike is not proposed."""
    units = {"base": (), "build-hello": ("opensmp",), "debian": ("openmpi-bni",)}
    place = "images/x.yaml:6:3"
    with pytest.raises(InputError) as caught:
        request = debian.DebianRequest(TRIXIE, "amd64", units, where={"build-hello": place})
        debian.resolve(request, site, Store.open(site.store), SilentReporter())
    findings = {finding.message.split("'")[1]: finding for finding in caught.value.findings}
    assert findings["opensmp"].where == place
    assert findings["opensmp"].hint == "search for its name: apt-cache search WORD"
    assert (findings["openmpi-bni"].where, findings["openmpi-bni"].hint) == ("", "did you mean 'openmpi-bin'?")


@pytest.mark.parametrize(
    ("asked", "version", "chosen", "replaced"),
    [
        ("mpi", "1.20.1", ["libmpi 1.0", "mpi 1.0"], ("libucx0=1.20.1+envbuild",)),
        pytest.param("mpi", "1.18", ["libmpi 1.0", "mpi 1.0"], ("libucx0=1.18+envbuild",), marks=pytest.mark.slow_unit),
        # too old for a package that depends on it: the real one is installed
        ("mpi", "1.15.0", ["libllvm17 1.0", "libmpi 1.0", "libucx0 1.18-2", "mpi 1.0"], ()),
        # requested by name: the real one is installed too
        pytest.param(
            *("mpi libucx0=1.18-2", "1.15.0", ["libllvm17 1.0", "libmpi 1.0", "libucx0 1.18-2", "mpi 1.0"], ()),
            marks=pytest.mark.slow_unit,
        ),
        # nothing depends on it
        pytest.param("openssl", "1.20.1", ["openssl 3.0-2"], (), marks=pytest.mark.slow_unit),
    ],
)
def test_a_dummy_package(site: Site, asked: str, version: str, chosen: list[str], replaced: tuple[str]) -> None:
    units = {"base": (), "debian": tuple(asked.split()), "build-x": ("mpi",)}
    request = debian.DebianRequest(TRIXIE, "amd64", units, replaces={"debian": [f"libucx0={version}"]})
    lock = debian.resolve(request, site, Store.open(site.store), SilentReporter())
    assert names(lock, "debian") == chosen
    assert lock.replaced["debian"] == replaced
    # a build links with the real one: its unit is another
    assert "libucx0 1.18-2" in names(lock, "build-x")
    assert "build-x" not in lock.replaced


@pytest.mark.slow_unit
def test_a_dummy_package_that_the_base_image_has(site: Site) -> None:
    installed = "Package: libucx0\nStatus: install ok installed\nVersion: 1.18-2\nArchitecture: amd64\n\n"
    installed += installed.replace("libucx0", "libc6").replace("1.18-2", "2.41-12+deb13u4")
    units = {"base": (), "debian": ("mpi",)}
    replaces = {"debian": ["libucx0=1.20.1"]}
    request = debian.DebianRequest(TRIXIE, "amd64", units, installed=installed, replaces=replaces)
    lock = debian.resolve(request, site, Store.open(site.store), SilentReporter())
    assert (names(lock, "debian"), lock.replaced["debian"]) == (["libmpi 1.0", "mpi 1.0"], ())


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="dpkg-deb is not installed")
def test_dpkg_installs_a_dummy_package(tmp_path: Path) -> None:
    commands = [
        command.replace("/tmp/", f"{tmp_path}/")
        for command in dummy_package_commands(DummyPackage.of("libucx0=1.20.1"), "amd64")
    ]
    # the umask of a build: dpkg-deb wants its folder to be open
    subprocess.run(["sh", "-ec", "\n".join(commands[:3])], check=True, capture_output=True, umask=0o022)
    control = subprocess.run(
        ["dpkg-deb", "--field", f"{tmp_path}/libucx0.deb"], check=True, capture_output=True, text=True
    )
    assert {"Package: libucx0", "Version: 1.20.1+envbuild", "Architecture: amd64"} <= set(control.stdout.splitlines())
    contents = subprocess.run(["dpkg-deb", "--contents", f"{tmp_path}/libucx0.deb"], check=True, capture_output=True)
    assert len(contents.stdout.splitlines()) == 1  # the folder ./


@pytest.mark.parametrize("package", ["new-libc-user", pytest.param("anti-dash", marks=pytest.mark.slow_unit)])
def test_packages_that_cannot_be_installed(site: Site, package: str) -> None:
    with pytest.raises(ConflictError, match=f"(?s)'debian' cannot be installed together.*{package}"):
        resolve(site, base="", debian=package)


@pytest.mark.slow_unit
def test_locked_versions_that_conflict_are_replaced(site: Site, tmp_path: Path, key: Signer) -> None:
    publish(tmp_path / "debian", "trixie-updates", [stanza("user", Depends="openssl (>= 3.0-2)")], key)
    lock = resolve(site, {"openssl": "3.0-1"}, base="", debian="user")
    assert names(lock, "debian") == ["openssl 3.0-2", "user 1.0"]


@pytest.mark.slow_unit
def test_lists_of_a_folder_are_read_again_when_its_release_file_changed(
    site: Site, tmp_path: Path, key: Signer
) -> None:
    resolve(site, base="")
    shutil.move(tmp_path / "debian/dists/trixie/main", tmp_path / "main")
    assert names(resolve(site, refresh=False, base="", debian="openssl"), "debian")  # from apt's own copy
    shutil.move(tmp_path / "main", tmp_path / "debian/dists/trixie/main")
    publish(tmp_path / "debian", "trixie-updates", [stanza("late")], key)
    assert names(resolve(site, refresh=False, base="", debian="late"), "debian") == ["late 1.0"]


def test_wrong_signature(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "debian/dists/trixie/InRelease"
    path.write_text(path.read_text().replace("Origin: Test", "Origin: Evil"))
    with pytest.raises(InputError, match="cannot be read"):
        resolve(site, base="")


def test_no_signature(site: Site, tmp_path: Path) -> None:
    publish(tmp_path / "debian", "trixie", MAIN, None)
    with pytest.raises(InputError, match="cannot be read"):
        resolve(site, base="")


@pytest.mark.slow_unit
def test_the_hint_of_an_expired_archive_is_an_option(
    site: Site, tmp_path: Path, key: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envbuild.lock.debian.apt_setup.host_options", dict)
    publish(tmp_path / "debian", "trixie", MAIN, key, released=RELEASED - 10**7, days=1)
    with pytest.raises(InputError, match="expired") as caught:
        resolve(site, base="")
    assert 'apt: {"Acquire::Check-Valid-Until": "false"}' in caught.value.hint
    frozen = replace(site, apt={"Acquire::Check-Valid-Until": "false"})
    assert "dash 1.0" in names(resolve(frozen, base=""), "base")


@pytest.mark.slow_unit
def test_the_second_mirror_is_tried(site: Site, tmp_path: Path) -> None:
    mirrors = {**site.mirrors, "debian:": (str(tmp_path / "none"), *site.mirrors["debian:"])}
    assert "dash 1.0" in names(resolve(replace(site, mirrors=mirrors), base=""), "base")


def test_a_server_that_fails_is_not_a_matter_of_keys(site: Site, tmp_path: Path) -> None:
    """apt calls an archive unsigned whose Release file it could not fetch."""
    with serve_private(tmp_path) as server:
        server.refused, server.refusal = ("/",), 500
        mirrors = {**site.mirrors, "debian:": (server.url,)}
        with pytest.raises(InputError) as caught:
            resolve(replace(site, mirrors=mirrors), base="")
    (finding,) = caught.value.findings
    assert "500" in finding.message and "mirrors: {debian: " in finding.hint and "keyring" not in finding.hint


def test_missing_parts_of_the_host(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    keyless = replace(TRIXIE, keyrings=())
    bare = replace(site, mirrors={}, debian_keyring=None)
    with pytest.raises(InputError) as caught:
        request = debian.DebianRequest(keyless, "amd64", {"base": ()})
        debian.resolve(request, bare, Store.open(site.store), SilentReporter())
    assert [(finding.message, finding.hint) for finding in caught.value.findings] == [
        (
            "this machine's apt configuration names no Debian archive",
            "write into site.yaml:  mirrors: {debian: [ADDRESS], debian-security: [ADDRESS]}",
        ),
        (
            "the keys of the Debian archive are not installed",
            "sudo apt install debian-archive-keyring, or in site.yaml:  keyrings: {debian: FILE}",
        ),
    ]
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(InputError, match="apt-get is not installed"):
        resolve(site, base="")


def test_host_options_hold_no_hooks() -> None:
    assert all(key.startswith("Acquire::") and "Languages" not in key for key in host_options())


def test_relations_and_fields() -> None:
    assert alternatives("aa (>= 1:2) | b+ [amd64], c2:any,dd") == [["aa", "b+"], ["c2"], ["dd"]]
    assert parse_fields("A: 1\n 2\n\t3\nB:x:y") == {"A": "1\n 2\n\t3", "B": "x:y"}
