"""Commits that git receives of servers: in a repository of their own, whose objects a cache gets when all arrived.

A fetch that fails, is killed, or is ended because it has too many bytes, leaves nothing in the cache: a part of a
commit there would be taken for all of it.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.lock.git.git_program import error_summary, run_git

SHALLOW = "shallow"  # the commits whose parents are not there (gitrepository-layout(5))


@dataclass(slots=True)
class Received:
    """The bytes of each fetch for one source, whether they remain or not. Safe to use from several threads."""

    sizes: dict[object, int] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def total(self) -> int:
        """Return the bytes of all fetches."""
        with self.guard:
            return sum(self.sizes.values())

    def record(self, fetch: object, size: int) -> int:
        """Set the bytes of one fetch, unless it had more. Return those of all."""
        with self.guard:
            self.sizes[fetch] = max(size, self.sizes.get(fetch, 0))
            return sum(self.sizes.values())


def has_commit(cache: Path, commit: str) -> bool:
    """Return whether a cache has a commit with all that it names: only then has a reference led to it."""
    if not (cache / "HEAD").is_file():
        return False
    own = run_git(cache, "rev-parse", "--verify", "--quiet", f"{reference(commit)}^{{commit}}").stdout
    return own.strip() == commit.encode() or bool(
        run_git(cache, "for-each-ref", "--count=1", "--contains", commit).stdout
    )


def reference(commit: str) -> str:
    """Return the name under which a cache has a commit."""
    return f"refs/envbuild/{commit}"


def make_repository(folder: Path) -> None:
    """Make an empty repository, unless there is one. Raises EngineError."""
    if not (folder / "HEAD").is_file():
        done = run_git(None, "init", "--quiet", "--bare", "--template=", str(folder))
        if done.returncode:
            raise EngineError(
                f"the store's folder {folder} cannot be created: {error_summary(done.stderr)}",
                hint="set ENVBUILD_STORE to a folder that you may write",
            )


def make_incoming(folder: Path, cache: Path) -> None:
    """Make a repository that can use what a cache has, so that only the rest is requested. Raises EngineError,
    OSError."""
    make_repository(folder)
    quoted = str(cache / "objects").replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    (folder / "objects/info").mkdir(exist_ok=True)
    (folder / "objects/info/alternates").write_text(f'"{quoted}"\n', errors="surrogateescape")
    with suppress(FileNotFoundError):
        shutil.copyfile(cache / SHALLOW, folder / SHALLOW)


def size_of(folder: Path) -> int:
    """Return the bytes of all files of a repository in which git works; one may have two names for a moment."""
    sizes: dict[int, int] = {}
    for path in _files(folder):
        with suppress(FileNotFoundError):  # it has its final name by now
            status = path.lstat()
            sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


def accept(folder: Path, cache: Path, commit: str) -> None:
    """Move what was fetched to a cache, if that has `commit`; its references last. Raises EngineError, OSError."""
    if not has_commit(folder, commit):
        return
    if (folder / SHALLOW).exists():
        (folder / SHALLOW).replace(cache / SHALLOW)
    # An index last: with it, git has the pack.
    for path in sorted(_files(folder / "objects"), key=lambda path: path.suffix == ".idx"):
        target = cache / path.relative_to(folder)
        if path.parent.name != "info" and not target.exists():
            target.parent.mkdir(exist_ok=True)
            path.rename(target)
    listed = run_git(folder, "for-each-ref", "--format=%(refname) %(objectname)").stdout.split()
    names = {**dict(zip(listed[::2], listed[1::2], strict=True)), reference(commit).encode(): commit.encode()}
    lines = b"".join(b"update %b %b\n" % item for item in names.items())
    done = run_git(cache, "update-ref", "--stdin", content=lines)
    if done.returncode:
        raise EngineError(f"the store's folder {cache} cannot be written: {error_summary(done.stderr)}")


def _files(folder: Path) -> Iterator[Path]:
    for inner, _, files in os.walk(folder):
        yield from (Path(inner, name) for name in files)
