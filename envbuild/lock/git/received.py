"""Commits that git receives of servers: in a repository of their own, whose objects a cache gets when all arrived.

A fetch that fails, is killed, or is ended because it has too many bytes, leaves nothing in the cache: a part of a
commit there would be taken for all of it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.folder_removal import discard_folder
from envbuild.core.regular_file import NotRegularError, TooLargeError, read_bounded
from envbuild.core.store.json_files import write_atomic
from envbuild.lock.git.git_program import SlowError, error_summary, run_git

SHALLOW = "shallow"  # the commits whose parents are not there (gitrepository-layout(5))
FULL = re.compile(rb"No space left on device|Disk quota exceeded|disk is full|Out of diskspace")
HASH, MAX_SHALLOW = re.compile(rb"[0-9a-f]{40}"), 64 << 20
PACK = frozenset((".pack", ".rev", ".idx"))  # gitformat-pack(5)
IGNORED = ("core.warnAmbiguousRefs=false",)  # the references: a power cut may damage them


@dataclass(slots=True)
class Received:
    """The bytes of each fetch for one source, by its place, whether they remain or not. Safe to use from several
    threads."""

    sizes: dict[tuple[object, object], int] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def total(self) -> int:
        """Return the bytes of all fetches."""
        with self.guard:
            return sum(self.sizes.values())

    def of(self, place: object, fetch: object) -> int:
        """Return the bytes of one fetch."""
        with self.guard:
            return self.sizes.get((place, fetch), 0)

    def record(self, place: object, fetch: object, size: int) -> int:
        """Set the bytes of one fetch, unless it had more. Return those of all."""
        with self.guard:
            self.sizes[place, fetch] = max(size, self.sizes.get((place, fetch), 0))
            return sum(self.sizes.values())

    def forget(self, place: object) -> None:
        """Leave out what a place sent that does not have the commit: nothing of it remains, and another place is tried
        for the same."""
        with self.guard:
            for key in [key for key in self.sizes if key[0] is place]:
                del self.sizes[key]


def has_commit(cache: Path, commit: str) -> bool:
    """Return whether a repository has a commit with all files that it names, however they came there: what a killed git
    left may lack some, and a reference to a commit may be gone."""
    names = ("rev-list", "--objects", "--quiet", "--no-walk", commit, "--")
    with suppress(SlowError):
        return (cache / "HEAD").is_file() and not run_git(cache, *names, settings=IGNORED).returncode
    return False


def reference(commit: str) -> str:
    """Return the name under which a cache has a commit."""
    return f"refs/envbuild/{commit}"


def names_commit(cache: Path, commit: str) -> bool:
    """Return whether a repository lists a commit; git may not be able to read it, or its files."""
    with suppress(SlowError):
        return (cache / "HEAD").is_file() and not run_git(cache, "cat-file", "-e", commit, settings=IGNORED).returncode
    return False


def make_repository(folder: Path) -> None:
    """Make an empty repository, unless there is one: not a part of it, which a killed git leaves. One whose HEAD or
    config a power cut emptied gets new ones, and keeps its objects. Raises EngineError, OSError."""
    present = (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()
    if present and not run_git(folder, "rev-parse", "--git-dir", settings=IGNORED).returncode:
        return
    new = folder.with_name(f"{folder.name}.new")
    discard_folder(new)
    done = run_git(None, "init", "--quiet", "--bare", "--template=", str(new))
    if done.returncode:
        discard_folder(new)
        if FULL.search(done.stderr):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        raise EngineError(
            f"the store's folder {folder} cannot be created: {error_summary(done.stderr)}",
            hint="set ENVBUILD_STORE to a folder that you may write",
        )
    if present:
        for name in ("HEAD", "config"):
            (new / name).replace(folder / name)
        discard_folder(new)
        return
    discard_folder(folder)
    new.rename(folder)


def make_incoming(folder: Path, cache: Path) -> None:
    """Make a repository that can use what a cache has, so that only the rest is requested. Raises EngineError,
    OSError."""
    make_repository(folder)
    quoted = str(cache / "objects").replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    (folder / "objects/info").mkdir(exist_ok=True)
    (folder / "objects/info/alternates").write_text(f'"{quoted}"\n', errors="surrogateescape")
    with suppress(FileNotFoundError):
        shutil.copyfile(cache / SHALLOW, folder / SHALLOW)


def shallow_commits(folder: Path) -> set[bytes]:
    """Return the commits of a repository whose parents are not there."""
    with suppress(FileNotFoundError, TooLargeError, NotRegularError):
        return {line for line in read_bounded(folder / SHALLOW, MAX_SHALLOW).splitlines() if HASH.fullmatch(line)}
    return set()


def size_of(folder: Path) -> int:
    """Return the bytes of all files of a repository in which git works; one may have two names for a moment."""
    sizes: dict[int, int] = {}
    for path in _files(folder):
        with suppress(FileNotFoundError):  # it has its final name by now
            status = path.lstat()
            sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


def accept(folder: Path, cache: Path, commit: str) -> bool:
    """Move what was fetched to a cache, if that has `commit`, and return whether it has; references last. Raises
    OSError."""
    if not has_commit(folder, commit):
        return False
    found = shallow_commits(folder) | shallow_commits(cache)
    if found or (cache / SHALLOW).exists():  # without what is none
        write_atomic(cache / SHALLOW, lambda file: file.write(b"".join(line + b"\n" for line in sorted(found))))
    for path in _objects(folder):
        target = cache / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        _move(path, target)
    _write_references(cache, {**_references(cache), **_references(folder), reference(commit): commit})
    return True


def _objects(folder: Path) -> list[Path]:
    """Return the files of objects that git has checked: loose ones, and packs, each before its index, with which git
    has it. An index without a pack came from a server of plain files, and can have anything."""
    files = [path for path in _files(folder / "objects") if path.parent.name != "info"]
    packs = {path.stem for path in files if path.suffix == ".pack"}
    kept = [path for path in files if path.parent.name != "pack" or (path.suffix in PACK and path.stem in packs)]
    return sorted(kept, key=lambda path: path.suffix == ".idx")


def _references(folder: Path) -> dict[str, str]:
    """Return name → object of the references that git can read: those of a cache only spare a fetch."""
    words = run_git(folder, "for-each-ref", "--format=%(refname) %(objectname)").stdout.decode(errors="replace").split()
    return dict(zip(words[::2], words[1::2], strict=False))


def _write_references(cache: Path, references: dict[str, str]) -> None:
    """Write all references of a cache as one file, which replaces those of an earlier release (a file each) and what a
    killed git left there: its locks would last."""
    lines = "".join(f"{commit} {name}\n" for name, commit in sorted(references.items())).encode()
    write_atomic(cache / "packed-refs", lambda file: file.write(lines))
    for path in (cache / "refs").iterdir():
        discard_folder(path)


def _move(path: Path, target: Path) -> None:
    """Rename a file, or copy it where the store's ``git`` is on another disk than its ``tmp``."""
    try:
        path.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with path.open("rb") as source:
            write_atomic(target, lambda file: shutil.copyfileobj(source, file), stat.S_IMODE(path.stat().st_mode))


def _files(folder: Path) -> Iterator[Path]:
    for inner, _, files in os.walk(folder):
        yield from (Path(inner, name) for name in files)
