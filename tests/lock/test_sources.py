"""Sources by origin: where archives may be, and all sources of an image together."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError, InputError, SpecError
from envbuild.core.store.store import Store
from envbuild.lock.fetch import fetch
from envbuild.lock.missing_inputs import source_finding
from envbuild.lock.model import Lock, SourceFile
from envbuild.lock.sources import candidate_places, lock_source, lock_sources, merge_sources
from envbuild.net.download import Transfer
from envbuild.net.site import Site, mirrors_setting
from envbuild.net.site_file import read_site
from envbuild.net.transport import Transport
from envbuild.spec.recipe import Archive, Git
from tests.support.git_server import Repo
from tests.support.lock_server import serve, sha256

pytestmark = pytest.mark.unit
UCX = Archive("ucx", "github:openucx/ucx@v1.20.1", "ucx-1.20.1.tar.gz")


def site(tmp_path: Path, **mirrors: str) -> Site:
    given = {f"{prefix.replace('_', '-')}:": (place,) for prefix, place in mirrors.items()}
    return Site(tmp_path / "store", mirrors={"python:": (), **given}, use_host=False)


def transfer(at: Site) -> Transfer:
    return Transfer(Transport(at.network()), Store.open(at.store), pause=0.001)


def test_places_of_a_release(tmp_path: Path) -> None:
    assert candidate_places(site(tmp_path, github="https://forge.example/"), UCX.origin, UCX.file) == [
        "https://forge.example/openucx/ucx/releases/download/v1.20.1/ucx-1.20.1.tar.gz",
        "https://forge.example/openucx/ucx/ucx-1.20.1.tar.gz",
        "https://forge.example/ucx/ucx-1.20.1.tar.gz",
        "https://forge.example/openucx/ucx@v1.20.1/ucx-1.20.1.tar.gz",
        "https://forge.example/openucx/ucx/archive/v1.20.1.tar.gz",
        "https://forge.example/ucx-1.20.1.tar.gz",
    ]
    at = Site(tmp_path, mirrors={"github:openucx/": ("/srv/openucx",)})
    assert "/srv/openucx/ucx/ucx-1.20.1.tar.gz" in candidate_places(at, UCX.origin, UCX.file)
    assert candidate_places(site(tmp_path), UCX.origin, UCX.file) == []


def test_mirror_of_one_repository(tmp_path: Path) -> None:
    at = Site(tmp_path, mirrors={"github:openucx/ucx": ("/srv/ucx",)})
    assert candidate_places(at, UCX.origin, UCX.file)[:2] == [
        "/srv/ucx/releases/download/v1.20.1/ucx-1.20.1.tar.gz",
        "/srv/ucx/ucx-1.20.1.tar.gz",
    ]


def test_without_a_mirror_the_forge_is_used(tmp_path: Path) -> None:
    at = Site(tmp_path, mirrors={"python:": ()})
    found = candidate_places(at, UCX.origin, UCX.file)
    assert [place.partition("openucx/")[2] for place in found] == [
        "ucx/releases/download/v1.20.1/ucx-1.20.1.tar.gz",
        "ucx/archive/v1.20.1.tar.gz",
    ]
    (release,) = candidate_places(at, "gitlab:a/b/c@v1", "c-1.tar.xz")
    assert release.endswith("/a/b/c/-/releases/v1/downloads/c-1.tar.xz")


def test_file_of_the_debian_archive(tmp_path: Path) -> None:
    origin, file = "debian:pool/main/p/pytorch/pytorch_2.6.0+dfsg.orig.tar.xz", "pytorch_2.6.0+dfsg.orig.tar.xz"
    at = Site(tmp_path, mirrors={"debian:": ("https://mirror.example/debian", "/srv/sources")})
    assert candidate_places(at, origin, file) == [
        f"https://mirror.example/debian/pool/main/p/pytorch/{file}",
        f"https://mirror.example/debian/{file}",
        f"/srv/sources/pool/main/p/pytorch/{file}",
        f"/srv/sources/{file}",
    ]
    only = Site(tmp_path, mirrors={"debian:pool/main/p/pytorch": ("/srv/one",), "debian:": ("/srv/debian",)})
    assert candidate_places(only, origin, file) == [f"/srv/one/{file}"]


def test_file_of_a_vendor(tmp_path: Path) -> None:
    origin, file = "vendor:acme/driver/1.0/driver-1.0.run", "driver-1.0.run"
    at = Site(tmp_path, mirrors={"vendor:acme": ("https://download.example/pub",), "vendor:": ("/srv/vendors",)})
    assert candidate_places(at, origin, file) == [
        f"https://download.example/pub/driver/1.0/{file}",
        f"https://download.example/pub/{file}",
    ]
    at = Site(tmp_path, mirrors={"vendor:": ("/srv/vendors",)})
    assert candidate_places(at, origin, file)[0] == f"/srv/vendors/acme/driver/1.0/{file}"
    assert candidate_places(Site(tmp_path, mirrors={"python:": ()}), origin, file) == []


def test_file_below_a_prefix(tmp_path: Path) -> None:
    assert (
        candidate_places(site(tmp_path, file="/srv"), "file:nccl/nccl.tar.xz", "nccl.tar.xz")[0]
        == "/srv/nccl/nccl.tar.xz"
    )


def test_a_digest_of_the_recipe_needs_no_download(tmp_path: Path) -> None:
    at = site(tmp_path)
    archive = Archive("ucx", UCX.origin, UCX.file, "A" * 64)
    assert lock_source(at, transfer(at), archive, {}) == SourceFile(UCX.file, UCX.origin, "a" * 64)


def test_digest_is_found(tmp_path: Path) -> None:
    with serve() as server:
        server.files["/openucx/ucx/archive/v1.20.1.tar.gz"] = b"content"
        at = site(tmp_path, github=server.url)
        found = lock_source(at, transfer(at), UCX, {})
        assert found == SourceFile(UCX.file, UCX.origin, sha256(b"content"), 7)
        assert Store(at.store).has_blob(found.sha256)
        server.files.clear()
        assert lock_source(at, transfer(at), UCX, {UCX.file: found}) == found
        other = Archive("ucx", "github:openucx/ucx@v2", UCX.file)
        with pytest.raises(InputError, match=f"{server.url}/openucx/ucx/archive/v2.tar.gz: HTTP 404"):
            lock_source(at, transfer(at), other, {UCX.file: found})


def test_no_mirror(tmp_path: Path) -> None:
    at = site(tmp_path)
    with pytest.raises(InputError, match="names no mirror") as caught:
        lock_source(at, transfer(at), UCX, {})
    assert caught.value.hint == (
        'write into site.yaml:  mirrors: {"github:openucx/ucx": [FOLDER-OR-ADDRESS]}  and put ucx-1.20.1.tar.gz there'
    )


@pytest.mark.parametrize(
    "origin",
    [
        "github:openucx/ucx@v1.20.1",
        f"github:openucx/ucx@{'1' * 40}",
        f"git:git.example.org/a/b@{'1' * 40}",
        "debian:pool/main/p/pytorch/x.tar.xz",
        "vendor:acme/driver/x.tar.xz",
        "file:nccl/x.tar.xz",
        "mirror:x.tar.xz",
    ],
)
def test_hint_is_a_line_that_works(tmp_path: Path, origin: str) -> None:
    (found,) = source_finding("lost", origin, "x.tar.xz").mirror_lines
    line = mirrors_setting(found).replace("FOLDER-OR-ADDRESS", "here")
    (tmp_path / "site.yaml").write_text(f"schema: 1\nupstream: false\n{line}\n")
    at = read_site(tmp_path / "site.yaml")
    assert at.places(origin)[1] == (str(tmp_path / "here"),)
    if "1111" not in origin:
        assert f"{tmp_path}/here/x.tar.xz" in candidate_places(at, origin, "x.tar.xz")
    assert at.places("debian:trixie/main")[1] == ()  # packages still come from where they did


def test_source_that_changed_upstream(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"other")
    at = site(tmp_path, file=str(tmp_path))
    wanted = lock_source(at, transfer(at), Archive("x", "file:x.tar.gz", "x.tar.gz", sha256(b"x")), {})
    lock = Lock("demo", "", "debian:13", "amd64", "3.13", 0, {}, {}, {}, {}, {wanted.file: wanted}, {})
    with pytest.raises(
        InputError, match=f"digest mismatch: expected sha256 {wanted.sha256}, got {sha256(b'other')}"
    ) as caught:
        fetch(lock, Store.open(at.store), at, SilentReporter(), where={"x.tar.gz": "images/demo.yaml:7:3"})
    assert caught.value.where == "images/demo.yaml:7:3"
    assert "its content is not what was locked" in caught.value.message
    assert caught.value.hint == (
        "the file was changed in that place: review what changed. To use the new file, correct the sha256 in the "
        "recipe, or if the recipe has none:  envbuild lock demo --upgrade x.tar.gz;  to use the locked file, name "
        "a place that still has it in site.yaml:  mirrors: {file: [FOLDER-OR-ADDRESS]}"
    )


# all sources of an image


def lock(at: Site, *sources: Archive | Git, known: dict[str, SourceFile] | None = None) -> dict[str, SourceFile]:
    archives = [source for source in sources if isinstance(source, Archive)]
    gits = [source for source in sources if isinstance(source, Git)]
    work = transfer(at)
    return lock_sources(at, work.transport, work, work.store, SilentReporter(), archives, gits, known or {})


def archive(name: str, sha256: str = "") -> Archive:
    return Archive(name, f"file:{name}.tar", f"{name}.tar", sha256)


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_all_sources_of_an_image(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "work/demo", {"x": b"x"})
    (tmp_path / "work/x.tar").write_bytes(b"x")
    at = site(tmp_path, file=str(tmp_path / "work"), github=str(tmp_path / "work"))
    commit = Git("demo", "github:demo/demo", repo.head)
    found = lock(at, archive("x"), commit, commit, archive("x", sha256(b"x").upper()))
    assert list(found) == ["x.tar", commit.file]
    assert found["x.tar"].sha256 == sha256(b"x") and found[commit.file].git
    shutil.rmtree(tmp_path / "work")
    assert lock(at, commit, archive("x"), known=found) == found


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_failures_are_reported_after_the_rest_is_stored(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/z.tar").write_bytes(b"z")
    at = site(tmp_path, file=str(tmp_path / "work"), github=str(tmp_path / "work"))
    commit = Git("demo", "github:demo/demo", "1" * 40)
    with pytest.raises(InputError) as caught:
        lock(at, archive("x"), archive("y"), commit, archive("z"))
    assert [finding.message.partition(" (")[0] for finding in caught.value.findings] == [
        "the source file:x.tar",
        "the source file:y.tar",
        f"the source github:demo/demo@{'1' * 40}",
    ]
    assert Store(at.store).has_blob(sha256(b"z"))


def test_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"x")
    at = site(tmp_path, file=str(tmp_path))
    Store.open(at.store)
    (at.store / "partial").rmdir()
    (at.store / "partial").touch()
    with pytest.raises(EngineError, match="cannot be written"):
        lock(at, archive("x"), archive("none"))


def test_same_source_of_two_recipes() -> None:
    one = Git("demo", "github:demo/demo", "1" * 40, "", ("b",))
    assert merge_sources([one, replace(one, tag="v1", submodules=("a",))]) == [
        replace(one, tag="v1", submodules=("a", "b"))
    ]
    assert merge_sources([archive("x"), archive("x", "a" * 64)]) == [archive("x", "a" * 64)]
    for other in (replace(one, origin="github:fork/demo"), Archive("x", "file:x", one.file)):
        with pytest.raises(SpecError, match=f"two different sources are named {one.file}"):
            merge_sources([one, other])
    with pytest.raises(SpecError, match="two different sources"):
        merge_sources([archive("x", "b" * 64), archive("x", "a" * 64)])
