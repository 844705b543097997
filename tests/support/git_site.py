"""Helpers of the tests of locked commits: a site with a store, and repositories with and without submodules."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
from envbuild.lock.git.lock_commit import lock_commit, obtain_commit
from envbuild.lock.model import SourceFile
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.spec.recipe import Git
from tests.support.git_server import Repo, Served, git, serve_git

MARKS = [
    pytest.mark.unit,
    pytest.mark.skipif(not shutil.which("git"), reason="git is not installed"),
]
ORIGIN = "github:demo/demo"
LONG = "/".join(["folder-with-a-long-name"] * 12) + "/file"
FILES = {
    "README": b"hello\n",
    "b/c": b"1",
    "b-c": b"2",
    "b/ü 中.txt": "ü".encode(),
    "new\nline": b"3",
    "-dash": b"4",
    "empty": b"",
    "big": os.urandom(700_000),
    LONG: b"5",
    ".gitattributes": b"secret export-ignore\nversion export-subst\n*.crlf text eol=crlf\n",
    "secret": b"kept",
    "version": b"$Format:%H$\n",
    "lines.crlf": b"a\nb\n",
}


@pytest.fixture
def demo(tmp_path: Path) -> Repo:
    repo = Repo.make(tmp_path / "work/demo")
    (repo.path / "link").symlink_to("b/c")
    (repo.path / "away").symlink_to("/dev/null")
    (repo.path / "run.sh").write_bytes(b"#!/bin/sh\n")
    (repo.path / "run.sh").chmod(0o755)
    repo.commit(FILES)
    git(repo.path, "tag", "--annotate", "--message", "1", "v1")
    return repo


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "served").mkdir()
    with serve_git(tmp_path / "served") as served:
        yield served


class Desk:
    """A site with a store of its own."""

    def __init__(self, folder: Path, **mirrors: str | Path) -> None:
        given = {f"{prefix}:": (str(place),) for prefix, place in mirrors.items()}
        self.site = Site(folder, mirrors={"python:": (), **given}, use_host=False)
        self.store = Store.open(folder)
        self.reporter = SilentReporter()

    def map(self, origin: str, *places: str | Path) -> Desk:
        self.site = replace(self.site, mirrors={**self.site.mirrors, origin: tuple(str(place) for place in places)})
        return self

    def lock(self, source: Git, known: SourceFile | None = None) -> SourceFile:
        entries = {known.file: known} if known else {}
        return lock_commit(self.site, Transport(self.site.network()), self.store, self.reporter, source, entries)

    def obtain(self, source: SourceFile) -> None:
        obtain_commit(self.site, Transport(self.site.network()), self.store, self.reporter, source)

    def members(self, source: SourceFile) -> dict[str, tarfile.TarInfo]:
        with tarfile.open(self.store.blob(source.sha256), "r:") as tar:
            return {member.name.partition("/")[2]: member for member in tar}

    def content(self, source: SourceFile, name: str) -> bytes:
        with tarfile.open(self.store.blob(source.sha256), "r:") as tar:
            file = tar.extractfile(f"{source.file.removesuffix('.tar')}/{name}")
            assert file
            return file.read()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a site whose mirror is the folder of the working trees."""
    return Desk(tmp_path / "store", github=tmp_path / "work")


def git_source(
    repo: Repo, *submodules: str, tag: str = "", name: str = "demo", left_out: str = "no test compiles them"
) -> Git:
    return Git(name, f"github:demo/{repo.path.name}", repo.head, tag, submodules or False, left_out)


def state(folder: Path) -> list[tuple[str, int, int]]:
    """Return what would differ if anything in a folder was written."""
    found = [(str(path), path.lstat()) for path in sorted(folder.rglob("*"))]
    return [(path, about.st_mtime_ns, about.st_size) for path, about in found]


@pytest.fixture
def nested(tmp_path: Path) -> Repo:
    """demo/top with libs/one (relative) and its own deep/two, and libs/three (of another owner)."""
    work = tmp_path / "work"
    two = Repo.make(work / "demo/two", {"two.c": b"2"})
    one = Repo.make(work / "demo/one", {"one.c": b"1"})
    one.link("deep/two", "git@github.com:demo/two.git", two.head)
    three = Repo.make(work / "other/three", {"three.c": b"3"})
    top = Repo.make(work / "demo/top", {"top.c": b"0"})
    top.link("libs/one", "../one.git", one.head)
    top.link("libs/three", "https://github.com/other/three", three.head)
    return top
