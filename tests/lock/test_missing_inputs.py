"""A site that lacks sources: everything else is in the store when the error is raised, and is not fetched again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import ConflictError, EnvbuildError, InputError
from envbuild.core.store.store import Store
from envbuild.lock import pending_archives
from envbuild.lock.fetch import fetch, inputs_to_fetch
from envbuild.lock.make_lock import make_lock
from envbuild.lock.model import Lock, SourceFile
from envbuild.lock.request import LockRequest, UnitRequest
from envbuild.net.site import Site
from envbuild.spec.recipe import AptRepository, Archive, Git, PythonIndex
from tests.support.debian_archive import Signer, stanza
from tests.support.git_server import Repo
from tests.support.lock_server import sdist, serve, sha256, wheel
from tests.support.lock_site import MARKS, make_site
from tests.support.lock_site import repo as repo  # a fixture
from tests.support.lock_site import widget as widget  # what it is a copy of

pytestmark = MARKS
OWN = ("apt 1.0", "ca-certificates 1.0", "dash 1.0", "openssl 3.0-1")  # as test packages have their content
DRIVER = Archive("driver", "vendor:acme/driver.run", "driver.run", sha256(b"driver"))


class Desk:
    """A site that has everything, from which a test takes something away."""

    def __init__(self, tmp_path: Path, key: Signer, repo: Repo) -> None:
        plain = tmp_path / "wheels"
        ordinary = [
            wheel(plain, "demo", "1.0", requires=("numpy",)),
            wheel(plain, "numpy", "2.4"),
            wheel(plain, "cmake", "4.0"),
            wheel(plain, "needy", "1.0", requires=("torch",)),
            wheel(plain, "torch", "2.15.0"),
            wheel(plain, "fast", "3.1"),
        ]
        torch = wheel(tmp_path / "own", "torch", "2.9.0+cu128", requires=("numpy",))
        (tmp_path / "vendor").mkdir()
        (tmp_path / "vendor/driver.run").write_bytes(b"driver")
        self.folder, self.reporter = tmp_path, SilentReporter()
        self.site = make_site(tmp_path, key, [stanza("gcc")], ordinary, torch, vendor=tmp_path / "vendor")
        self.store = Store.open(self.site.store)
        units = {
            "base": UnitRequest(debian=("ca-certificates",)),
            "debian": UnitRequest(debian=("openssl",)),
            "venv": UnitRequest(python=("demo",)),
            "build-widget": UnitRequest(
                debian=("gcc",), python=("cmake",), git=(Git("widget", "github:demo/widget", repo.head),)
            ),
            "build-driver": UnitRequest(archives=(DRIVER,)),
        }
        where = {"widget": "images/demo.yaml:8:3", "driver": "images/demo.yaml:9:3"}
        self.request = LockRequest("demo", "debian:13", "debian:13", "amd64", "3.13", units, where=where)

    def without(self, *prefixes: str) -> Site:
        return replace(self.site, mirrors={k: v for k, v in self.site.mirrors.items() if k not in prefixes})

    def lock(self, site: Site, request: LockRequest | None = None) -> Lock:
        self.reporter = SilentReporter()
        return make_lock(request or self.request, site, self.store, self.reporter)

    def lacks(self, site: Site, request: LockRequest | None = None) -> EnvbuildError:
        with pytest.raises(EnvbuildError) as caught:
            self.lock(site, request)
        return caught.value

    def has(self, *contents: str | Path) -> list[bool]:
        """Return whether the store has Debian packages (their content), or files."""
        digests = [sha256(item.read_bytes() if isinstance(item, Path) else item.encode()) for item in contents]
        return [self.store.has_blob(digest) for digest in digests]

    def wheel(self, name: str) -> Path:
        return next(self.folder.glob(f"wheels/{name}-*.whl"))


@pytest.fixture
def desk(tmp_path: Path, key: Signer, repo: Repo) -> Desk:
    return Desk(tmp_path, key, repo)


def heads(error: EnvbuildError) -> list[str]:
    return [finding.message.partition(" cannot")[0].partition(",")[0].partition(" (")[0] for finding in error.findings]


@pytest.mark.slow_unit
def test_everything_but_a_source_is_fetched(desk: Desk, repo: Repo) -> None:
    error = desk.lacks(desk.without("github:", "vendor:"))
    assert isinstance(error, InputError) and error.exit_code == 10
    assert heads(error) == [f"the source github:demo/widget@{repo.head}", "the source vendor:acme/driver.run"]
    assert [finding.where for finding in error.findings] == ["images/demo.yaml:8:3", ""]
    assert all('mirrors: {"' in finding.hint for finding in error.findings)
    assert all(desk.has(*OWN, "gcc 1.0", *(desk.wheel(name) for name in ("demo", "numpy", "cmake", "uv"))))
    size = sum(path.stat().st_size for path in desk.store.root.glob("blobs/sha256/*"))
    cached = f"demo: 9 inputs, {size / 1000:.1f} kB, in the store {desk.store.root}"
    assert desk.reporter.lines[-2:] == [
        f"{cached}; the next run fetches only what is missing",
        "demo: these lines of site.yaml would supply the rest; replace the places with yours:\nmirrors:\n"
        '  "github:demo/widget": [FOLDER-OR-ADDRESS]\n  "vendor:acme/": [FOLDER-OR-ADDRESS]',
    ]


@pytest.mark.slow_unit
def test_nothing_large_is_fetched_before_the_error(desk: Desk, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another input without a place is found all the same."""
    monkeypatch.setattr("envbuild.lock.make_lock.LARGE", 1000)
    error = desk.lacks(desk.without("github:", "vendor:"))
    assert heads(error) == [f"the source github:demo/widget@{repo.head}", "the source vendor:acme/driver.run"]
    assert not any(desk.has(*OWN, "gcc 1.0", *(desk.wheel(name) for name in ("demo", "numpy", "cmake", "uv"))))
    assert any("10 other inputs, " in line and "not downloaded before" in line for line in desk.reporter.lines)


@pytest.mark.slow_unit
def test_nothing_is_fetched_twice(desk: Desk, repo: Repo) -> None:
    desk.lacks(desk.without("github:"))
    assert all(desk.has("driver", *OWN))
    shutil.rmtree(desk.folder / "debian/pool")
    shutil.rmtree(desk.folder / "vendor")
    lock = desk.lock(desk.site)
    assert inputs_to_fetch(lock, desk.store) == []
    shutil.rmtree(desk.folder / "wheels")
    reporter = SilentReporter()
    fetch(lock, desk.store, desk.site, reporter)
    assert reporter.lines == []


@pytest.mark.slow_unit
def test_a_second_missing_input_is_reported_in_the_first_run(desk: Desk) -> None:
    """An input whose digest the recipe knows is normally not requested: it is when another input is missing."""
    assert DRIVER.file in desk.lock(desk.without("vendor:")).sources
    assert len(desk.lacks(desk.without("github:", "vendor:")).findings) == 2


@pytest.mark.slow_unit
def test_units_that_need_a_missing_repository_wait(desk: Desk, key: Signer) -> None:
    units = {**desk.request.units, "build-cuda": UnitRequest(debian=("cuda-nvcc", "openssl"))}
    repository = AptRepository("apt:cuda", "/", (), key.fingerprint, "key.pub")
    request = replace(desk.request, units=units, repositories=(repository,))
    for site in (
        desk.without("apt:cuda"),
        replace(desk.site, mirrors={**desk.site.mirrors, "apt:cuda": ("/nowhere",)}),
    ):
        error = desk.lacks(site, request)
        assert len(error.findings) == 1 and "apt:cuda" in error.message
        assert "the Debian packages of 'build-cuda' wait for the package repositories that cannot be read" in (
            desk.reporter.lines
        )
        assert all(desk.has(*OWN, "gcc 1.0", desk.wheel("demo")))
        assert desk.has("cuda-nvcc 12.4") == [False]
    assert "cuda-nvcc_12.4_amd64.deb" in desk.lock(desk.site, request).debian


@pytest.mark.slow_unit
def test_a_probably_misspelt_name_is_reported_while_a_repository_is_missing(desk: Desk, key: Signer) -> None:
    """The name may be of that repository, so that everything else continues; a name unlike any known one surely is."""
    units = {**desk.request.units, "debian": UnitRequest(debian=("opnssl", "cuda-nvcc", "openssl"))}
    repository = AptRepository("apt:cuda", "/", (), key.fingerprint, "key.pub")
    request = replace(desk.request, units=units, repositories=(repository,))
    missing, perhaps = desk.lacks(desk.without("apt:cuda"), request).findings
    assert missing.message == "no place is known for the package repository apt:cuda"
    assert perhaps.message == ("'opnssl' (required by debian) is perhaps misspelt: no archive that can be read has it")
    assert perhaps.hint == "did you mean 'openssl'? Otherwise keep it: apt:cuda may have it"
    assert all(desk.has("apt 1.0", "gcc 1.0", desk.wheel("demo")))
    (sure,) = desk.lacks(desk.site, request).findings
    assert sure.message == "neither the Debian archive nor apt:cuda has a package 'opnssl' (required by debian)"


@pytest.mark.slow_unit
def test_a_repository_without_its_list_does_not_stop_the_others(desk: Desk, key: Signer) -> None:
    """It offers its key, so that only apt finds out."""
    shutil.copytree(desk.folder / "cuda", desk.folder / "doca")
    repositories = tuple(AptRepository(f"apt:{name}", "/", (), key.fingerprint, "key.pub") for name in ("cuda", "doca"))
    units = {**desk.request.units, "build-cuda": UnitRequest(debian=("cuda-nvcc",))}
    for path in (desk.folder / "doca").glob("*Release*"):
        path.unlink()
    site = replace(desk.site, mirrors={**desk.site.mirrors, "apt:doca": ("/nowhere", str(desk.folder / "doca"))})
    error = desk.lacks(site, replace(desk.request, units=units, repositories=repositories))
    (finding,) = error.findings
    assert finding.message.startswith("the package repository apt:doca cannot be read:")
    assert "/nowhere" in finding.message and str(desk.folder / "doca") in finding.message
    assert all(desk.has(*OWN, "cuda-nvcc 12.4"))


@pytest.mark.slow_unit
def test_units_that_need_a_missing_index_wait(desk: Desk) -> None:
    """Directly, and through a package of the package index; what the index has under that name is not taken."""
    index = PythonIndex("pip:torch", ("torch",))
    for wanted in ("torch", "needy"):
        units = {
            **desk.request.units,
            "venv": UnitRequest(python=(wanted,)),
            "venv-core": UnitRequest(python=("numpy",)),
        }
        error = desk.lacks(desk.without("pip:torch"), replace(desk.request, units=units, indexes=(index,)))
        assert [finding.message for finding in error.findings] == [
            "no place is known for pip:torch, which provides torch"
        ]
        assert "the Python packages of 'venv' wait for torch of pip:torch" in desk.reporter.lines
        assert desk.has(desk.wheel("cmake"), desk.wheel("uv"), desk.wheel("torch")) == [True, True, False]


@pytest.mark.slow_unit
def test_an_sdist_that_is_missing(desk: Desk) -> None:
    """Its version may be known from the recipe; where it is not, the venv is unknown."""
    units = {**desk.request.units, "venv": UnitRequest(python=("demo", "fast"))}
    for text, waits in (("fast==3.0", False), ("fast", True)):
        shutil.rmtree(desk.store.root)
        desk.store = Store.open(desk.site.store)
        units["build-widget"] = replace(desk.request.units["build-widget"], sdists=(text,))
        error = desk.lacks(desk.without("github:"), replace(desk.request, units=units))
        assert [f"an sdist for '{text}'" in finding.message for finding in error.findings] == [True, False]
        line = "the Python packages of 'venv' wait for fast (its sdist)"
        assert (line in desk.reporter.lines) is waits


@pytest.mark.slow_unit
def test_an_archive_without_a_digest_is_downloaded_once(desk: Desk) -> None:
    """Also by the next run, though the first one came to no lock."""
    with serve() as server:
        server.files["/x.tar.gz"] = b"content"
        plain = Archive("x", "file:x.tar.gz", "x.tar.gz")
        request = replace(desk.request, units={**desk.request.units, "build-x": UnitRequest(archives=(plain,))})
        site = replace(desk.site, mirrors={**desk.site.mirrors, "file:": (server.url,)})
        desk.lacks(replace(site, mirrors={**site.mirrors, "github:": ("/nowhere",)}), request)
        assert pending_archives.read_pending(desk.store, site) == {
            "driver.run": SourceFile("driver.run", DRIVER.origin, DRIVER.sha256),
            "x.tar.gz": SourceFile("x.tar.gz", plain.origin, sha256(b"content"), 7),
        }
        server.files["/x.tar.gz"] = b"changed"
        lock = desk.lock(site, request)
        assert lock.sources["x.tar.gz"].sha256 == sha256(b"content")
        assert len(server.asked) == 1
        assert pending_archives.read_pending(desk.store, site) == {}
        assert desk.lock(site, request).sources["x.tar.gz"].sha256 == sha256(b"changed")


@pytest.mark.slow_unit
def test_an_archive_of_a_failed_run_counts_for_the_places_that_it_came_from(desk: Desk) -> None:
    """Another project of this user, or the same one after its mirror was corrected, has its own."""
    plain = Archive("x", "file:x.tar.gz", "x.tar.gz")
    request = replace(desk.request, units={**desk.request.units, "build-x": UnitRequest(archives=(plain,))})
    with serve() as wrong, serve() as right:
        wrong.files["/x.tar.gz"], right.files["/x.tar.gz"] = b"wrong", b"right"
        first, second = (
            replace(desk.site, mirrors={**desk.site.mirrors, "file:": (there.url,)}) for there in (wrong, right)
        )
        desk.lacks(replace(first, mirrors={**first.mirrors, "github:": ("/nowhere",)}), request)
        assert "x.tar.gz" in pending_archives.read_pending(desk.store, first)
        assert "x.tar.gz" not in pending_archives.read_pending(desk.store, second)
        unchecked = replace(first, insecure_hosts=("registry.example",))
        assert "x.tar.gz" not in pending_archives.read_pending(desk.store, unchecked)
        desk.lacks(replace(second, mirrors={**second.mirrors, "github:": ("/nowhere",)}), request)
        assert pending_archives.read_pending(desk.store, second)["x.tar.gz"].sha256 == sha256(b"right")
        assert desk.lock(second, request).sources["x.tar.gz"].sha256 == sha256(b"right")


@pytest.mark.slow_unit
def test_a_mistake_in_the_spec_is_reported_before_downloads(desk: Desk) -> None:
    units = {**desk.request.units, "venv": UnitRequest(python=("numpy<1", "numpy>2"))}
    error = desk.lacks(desk.without("github:"), replace(desk.request, units=units))
    assert error.exit_code == 10 and len(error.findings) == 2
    assert not any(desk.has(*OWN))
    units["venv"] = UnitRequest(python=("nmpy",))
    error = desk.lacks(desk.without("github:"), replace(desk.request, units=units))
    assert error.exit_code == 10 and not any(desk.has(*OWN))
    with pytest.raises(ConflictError):
        desk.lock(desk.site, replace(desk.request, units={**units, "venv": UnitRequest(python=("numpy<1",))}))


@pytest.mark.slow_unit
def test_a_listed_file_that_does_not_exist_is_reported_with_the_rest(desk: Desk, repo: Repo) -> None:
    next((desk.folder / "debian/pool").glob("*/o/openssl/*.deb")).unlink()
    error = desk.lacks(desk.without("github:"))
    assert heads(error) == [f"the source github:demo/widget@{repo.head}", "the Debian package openssl 3.0-1"]


def test_the_places_of_a_spec_do_not_outdate_a_lock(desk: Desk) -> None:
    assert replace(desk.request, where={}).digest() == desk.request.digest()
    assert [desk.request.unit_place(unit) for unit in ("build-widget", "venv")] == ["images/demo.yaml:8:3", ""]


@pytest.mark.slow_unit
def test_an_available_sdist_is_fetched(desk: Desk) -> None:
    made = sdist(desk.folder / "wheels", "fast", "3.0")
    folder = replace(desk.site, mirrors={**desk.site.mirrors, "python:": (str(desk.folder / "wheels"),)})
    widget = replace(desk.request.units["build-widget"], sdists=("fast",))
    units = {**desk.request.units, "venv": UnitRequest(python=("demo", "fast")), "build-widget": widget}
    bare = replace(folder, mirrors={**folder.mirrors, "github:": ()})
    desk.lacks(bare, replace(desk.request, units=units))
    assert desk.has(made, desk.wheel("demo"), desk.wheel("fast")) == [True, True, False]
