"""Vendors' repositories at their public homes: keys of other files, keys that sqv refuses, distributions that a vendor
does not have, web pages in place of an archive."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.distributions import find_distribution
from envbuild.core.errors import InputError
from envbuild.core.store.store import Store
from envbuild.lock.debian import resolve as debian
from envbuild.lock.debian.signing_keys import is_bound_by_weak_hash
from envbuild.net.site import Site
from envbuild.spec.recipe import AptRepository
from tests.support.debian_archive import Signer, publish, signer, stanza
from tests.support.home_files import homes
from tests.support.lock_server import Answers, serve

pytestmark = [
    pytest.mark.unit,
    pytest.mark.slow_unit,
    pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed"),
    pytest.mark.skipif(not shutil.which("gpg"), reason="gpg is not installed"),
]
ORIGIN = "apt:maker/u22/x86_64"


@pytest.fixture(scope="module")
def vendor() -> Iterator[Signer]:
    with signer() as made:
        yield made


@pytest.fixture(scope="module")
def sha1() -> Iterator[Signer]:
    """Yield a key that binds its identity with SHA-1, as NVIDIA's for CUDA does."""
    with signer("--cert-digest-algo", "SHA1") as made:
        yield made


@pytest.fixture
def server() -> Iterator[Answers]:
    with serve() as answers:
        yield answers


@pytest.fixture
def site(tmp_path: Path, key: Signer) -> Site:
    """Return a site with Debian's archive, which takes everything else from public homes."""
    for suite in ("trixie", "trixie-updates"):
        publish(tmp_path / "debian", suite, [stanza("dash", essential=True), stanza("apt")], key)
    return Site(
        tmp_path / "store",
        mirrors={"debian:": (str(tmp_path / "debian"),)},
        debian_keyring=key.keyring,
        apt={"Acquire::Retries": "0"},
    )


def offer(server: Answers, folder: Path, key: Signer, *, key_file: str = "", at: str = "/u22/x86_64") -> None:
    """Serve a flat repository with the package tool, and its key under `key_file`."""
    publish(folder, "./", [stanza("tool", "1", folder=".")], key)
    for path in folder.iterdir():
        server.files[f"{at}/{path.name}"] = path.read_bytes()
    if key_file:
        server.files[f"{at}/{key_file}"] = key.armored


class Lines(SilentReporter):
    """A reporter that records the lines of information."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str) -> None:
        self.lines.append(text)


def lock(site: Site, repository: AptRepository) -> tuple[debian.DebianLock, list[str]]:
    reporter = Lines()
    request = debian.DebianRequest(
        find_distribution("debian:13"), "amd64", {"base": (), "debian": ("tool",)}, [repository], refresh=True
    )
    return debian.resolve(request, site, Store.open(site.store), reporter), reporter.lines


def wants(key: Signer | str, key_file: str = "key.pub") -> AptRepository:
    return AptRepository(ORIGIN, "./", (), key if isinstance(key, str) else key.fingerprint, key_file)


def test_a_repository_at_its_public_home(site: Site, server: Answers, vendor: Signer, tmp_path: Path) -> None:
    offer(server, tmp_path / "flat", vendor, key_file="key.pub")
    with homes(tmp_path / "homes", {"origin": "apt:maker", "address": server.url}):
        found, _ = lock(site, wants(vendor))
        assert [file.archive for file in found.units["debian"]] == [ORIGIN]
        with pytest.raises(InputError, match="no place is known"):
            lock(replace(site, use_host=False), wants(vendor))


def test_a_key_that_moved_to_another_file(
    site: Site, server: Answers, vendor: Signer, key: Signer, tmp_path: Path
) -> None:
    """The recipe's file has the key before; the vendor's new one is at another address."""
    offer(server, tmp_path / "flat", vendor)
    server.files["/u22/x86_64/key.pub"] = key.armored
    server.files["/public_keys/new.asc"] = vendor.armored
    known = {"fingerprint": vendor.fingerprint, "files": ["gone.gpg", f"{server.url}/public_keys/new.asc"]}
    with homes(tmp_path / "homes", {"origin": "apt:maker", "address": server.url, "keys": [known]}):
        found, _ = lock(site, wants(vendor))
        assert found.units["debian"]
        # A mirror of the site answers for its own repository: no key comes from elsewhere.
        mirrored = replace(site, mirrors={**site.mirrors, "apt:maker": (server.url,)})
        with pytest.raises(InputError, match="is not the expected one"):
            lock(replace(mirrored, store=tmp_path / "other"), wants(vendor))


def test_the_key_before_a_rotation_is_answered_with_the_new_one(
    site: Site, server: Answers, vendor: Signer, tmp_path: Path
) -> None:
    offer(server, tmp_path / "flat", vendor, key_file="key.pub")
    known = {"fingerprint": vendor.fingerprint, "files": ["key.pub"], "since": "2026-01"}
    with (
        homes(tmp_path / "homes", {"origin": "apt:maker", "address": server.url, "keys": [known]}),
        pytest.raises(InputError) as caught,
    ):
        lock(site, wants("0" * 40))
    assert caught.value.exit_code == 10
    assert f"the vendor signs with {vendor.fingerprint} since 2026-01" in caught.value.hint


def test_weak_bindings_are_recognized(vendor: Signer, sha1: Signer) -> None:
    assert is_bound_by_weak_hash(sha1.keyring)
    assert not is_bound_by_weak_hash(vendor.keyring)


@pytest.mark.skipif(not shutil.which("gpgv"), reason="gpgv is not installed")
def test_gpgv_checks_keys_that_sqv_refuses(
    site: Site, server: Answers, sha1: Signer, vendor: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with sqv; where apt does not use it (before 3.0), the result is the same."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sqv").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin/sqv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{Path('/usr/bin')}:{tmp_path / 'bin'}:/bin:/usr/sbin:/sbin")
    offer(server, tmp_path / "flat", sha1, key_file="key.pub")

    def configurations() -> str:
        return "".join(path.read_text() for path in site.store.glob("apt/*/apt.conf"))

    with homes(tmp_path / "homes", {"origin": "apt:maker", "address": server.url}):
        found, lines = lock(site, wants(sha1))
        assert found.units["debian"]
        assert any("gpgv checks the signature of apt:maker" in line for line in lines)
        assert 'APT::Key::GPGVCommand "' in configurations()
        # The signature is still checked: an archive that another key signs is refused.
        offer(server, tmp_path / "flat", vendor)
        server.files["/u22/x86_64/key.pub"] = sha1.armored
        with pytest.raises(InputError, match="cannot be read"):
            lock(site, wants(sha1))
        shutil.rmtree(site.store / "apt")
        offer(server, tmp_path / "flat", vendor, key_file="key.pub")
        _, lines = lock(site, wants(vendor))
        assert not any("gpgv" in line for line in lines)
        assert "GPGVCommand" not in configurations()


def test_a_distribution_that_the_vendor_does_not_have(
    site: Site, server: Answers, vendor: Signer, tmp_path: Path
) -> None:
    entry = {"origin": "apt:maker", "address": server.url, "folders": ["u20", "u24"]}
    with homes(tmp_path / "homes", entry), pytest.raises(InputError) as caught:
        lock(site, wants(vendor))
    assert "for u22; it has: u20, u24" in caught.value.message
    assert f'mirrors: {{"{ORIGIN}": [' in caught.value.hint
    assert server.asked == []  # known before the first request
    entry = {"origin": "apt:maker", "address": server.url, "suites": ["jammy", "noble"]}
    with homes(tmp_path / "homes", entry), pytest.raises(InputError, match="for bookworm; it has: jammy, noble"):
        lock(site, replace(wants(vendor), suite="bookworm", components=("main",)))


def test_a_login_page_in_place_of_an_archive(site: Site, server: Answers, vendor: Signer, tmp_path: Path) -> None:
    page = b"<!DOCTYPE html><html><body><form>Log in</form></body></html>"
    server.files = {"/u22/x86_64/key.pub": vendor.armored, "/u22/x86_64/InRelease": page}
    with homes(tmp_path / "homes", {"origin": "apt:maker", "address": server.url}):
        with pytest.raises(InputError) as caught:
            lock(site, wants(vendor))
        assert "a web page answers" in caught.value.hint
        server.files["/u22/x86_64/key.pub"] = page
        with pytest.raises(InputError, match="contains no OpenPGP key"):
            lock(site, wants(vendor))


def test_a_key_that_is_out_of_date(site: Site, server: Answers, tmp_path: Path) -> None:
    """A vendor that renews its key under the same fingerprint, as AWS did for Neuron."""
    with signer("--faked-system-time", "20200101T000000!", expires="seconds=100000") as old:
        publish(tmp_path / "flat", "./", [stanza("tool", "1", folder=".")], None)
        release = b"Origin: Test\nDate: Thu, 02 Jan 2020 00:00:00 GMT\nArchitectures: amd64\n"
        (tmp_path / "release").write_bytes(release)
        old.gpg("--faked-system-time", "20200101T010000!", "--clear-sign", str(tmp_path / "release"))
        server.files["/u22/x86_64/InRelease"] = (tmp_path / "release.asc").read_bytes()
        server.files["/u22/x86_64/key.pub"] = old.armored
        with (
            homes(tmp_path / "homes", {"origin": "apt:maker", "address": server.url}),
            pytest.raises(InputError) as caught,
        ):
            lock(site, wants(old))
    assert "EXPKEYSIG" in caught.value.message
    assert "envbuild lock NAME --refresh" in caught.value.hint
