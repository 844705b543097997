"""Archives by origin."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockserver import serve, sha256

from envbuild.errors import InputError
from envbuild.lock.lockfile import SourceFile
from envbuild.lock.sources import candidates, lock_source
from envbuild.lock.transfer import Transfer
from envbuild.lock.transport import Transport
from envbuild.recipe import Archive
from envbuild.site import Site
from envbuild.store import Store

pytestmark = pytest.mark.unit
UCX = Archive("ucx", "github:openucx/ucx@v1.20.1", "ucx-1.20.1.tar.gz")


def site(tmp_path: Path, **mirrors: str) -> Site:
    given = {f"{prefix.replace('_', '-')}:": (place,) for prefix, place in mirrors.items()}
    return Site(tmp_path / "store", mirrors={"python:": (), **given}, use_host=False)


def transfer(at: Site) -> Transfer:
    return Transfer(Transport(at), Store.open(at.store), pause=0.001)


def test_places_of_a_release(tmp_path: Path) -> None:
    assert candidates(site(tmp_path, github="https://forge.example/"), UCX.origin, UCX.file) == [
        "https://forge.example/openucx/ucx/releases/download/v1.20.1/ucx-1.20.1.tar.gz",
        "https://forge.example/openucx/ucx/ucx-1.20.1.tar.gz",
        "https://forge.example/ucx/ucx-1.20.1.tar.gz",
        "https://forge.example/openucx/ucx@v1.20.1/ucx-1.20.1.tar.gz",
        "https://forge.example/openucx/ucx/archive/v1.20.1.tar.gz",
        "https://forge.example/ucx-1.20.1.tar.gz",
    ]
    at = Site(tmp_path, mirrors={"github:openucx/": ("/srv/openucx",)})
    assert "/srv/openucx/ucx/ucx-1.20.1.tar.gz" in candidates(at, UCX.origin, UCX.file)
    assert candidates(site(tmp_path), UCX.origin, UCX.file) == []


def test_file_below_a_prefix(tmp_path: Path) -> None:
    assert candidates(site(tmp_path, file="/srv"), "file:nccl/nccl.tar.xz", "nccl.tar.xz")[0] == "/srv/nccl/nccl.tar.xz"


def test_given_digest_is_kept_without_a_look(tmp_path: Path) -> None:
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
    assert caught.value.hint.startswith("write into site.yaml:  mirrors: {github: [ADDRESS-OR-FOLDER]}")
