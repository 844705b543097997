"""The limit of what git receives of servers for one source, in several repositories or many files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.lock.git.lock_commit import lock_commit, obtain_commit
from envbuild.net.limits import DownloadLimits
from envbuild.net.transport import Transport
from tests.support.git_server import Repo, Served, git
from tests.support.git_site import MARKS, Desk, git_source
from tests.support.git_site import demo as demo  # a fixture
from tests.support.git_site import server as server  # a fixture

pytestmark = MARKS
NUMBER = 8


def stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def top(tmp_path: Path, server: Served) -> Repo:
    """Return a repository with submodules of 1 MiB, each a repository of its own on the server, some in another one."""
    work = tmp_path / "work/demo"
    for at in range(NUMBER):
        part = Repo.make(work / f"part{at}", {"large": os.urandom(1 << 20)})
        if at == NUMBER - 1:
            part.link("deep", "../part0", git(work / "part0", "rev-parse", "HEAD"))
        part.bare(tmp_path / f"served/demo/part{at}.git")
    top = Repo.make(work / "top", {"top.c": b"0"})
    for at in range(1, NUMBER):
        top.link(f"part{at}", f"../part{at}", git(work / f"part{at}", "rev-parse", "HEAD"))
    top.bare(tmp_path / "served/demo/top.git")
    return top


def test_the_repositories_of_all_submodules_together(top: Repo, tmp_path: Path, server: Served) -> None:
    """No repository has more than the limit."""
    locked = Desk(tmp_path / "other", github=tmp_path / "work").lock(git_source(top, "*"))
    assert len(locked.submodules) == NUMBER

    def lock(desk: Desk, transport: Transport) -> object:
        return lock_commit(desk.site, transport, desk.store, desk.reporter, git_source(top, "*"), {})

    def obtain(desk: Desk, transport: Transport) -> object:
        return obtain_commit(desk.site, transport, desk.store, desk.reporter, replace(locked, sha256="0" * 64))

    steps: tuple[Callable[[Desk, Transport], object], ...] = (lock, obtain)
    for step in steps:
        desk = Desk(tmp_path / step.__name__, github=server.url)
        small = Transport(desk.site.network(), limits=DownloadLimits(file=3 << 20))
        with pytest.raises(InputError, match="the repositories of the source have more than 3 MiB with its submodules"):
            step(desk, small)
        assert stored(tmp_path / step.__name__ / "git") < 4 << 20
    desk = Desk(tmp_path / "enough", github=server.url)
    assert lock(desk, Transport(desk.site.network(), limits=DownloadLimits(file=(NUMBER + 1) << 20))) == locked


@pytest.mark.slow_unit
def test_loose_objects_of_a_server_of_static_files(demo: Repo, tmp_path: Path, server: Served) -> None:
    """Each is a file of its own, to which the limit of a file holds."""
    server.plain = True
    for number in range(4):
        demo.commit({f"large{number}": os.urandom(1 << 20)})
    bare = demo.bare(tmp_path / "served/demo/demo.git")
    for pack in list((bare / "objects/pack").glob("*.pack")):
        content = pack.read_bytes()
        for file in (bare / "objects/pack").iterdir():
            file.unlink()
        git(bare, "unpack-objects", "-q", content=content)
    git(bare, "update-server-info")
    desk = Desk(tmp_path / "s", github=server.url)
    small = Transport(desk.site.network(), limits=DownloadLimits(file=2 << 20))
    with pytest.raises(InputError, match="the repositories of the source have more than 2 MiB"):
        lock_commit(desk.site, small, desk.store, desk.reporter, git_source(demo), {})
    assert stored(tmp_path / "s/git") < 1 << 20
    assert desk.lock(git_source(demo)).size > 4 << 20
