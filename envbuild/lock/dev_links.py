"""Links by which a program of the image that may write a project folder could exchange specs and recipes of the caller:
the folder of these is read-only for it, and what is in there may not lead to, nor have a name in, what is writable."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path

from envbuild.core.errors import SpecError
from envbuild.core.link_walk import LinkCycleError, Place, Step, walk
from envbuild.core.text import printable
from envbuild.spec.project_intrusions import paths_below

Inode = tuple[int, int]


def check_ways(paths: Iterable[Path], guarded: Collection[Path], folders: Collection[Path]) -> None:
    """Raise SpecError if a program that may write `folders`, but for the parts `guarded`, could put something else in
    the place of one of the `paths`, or of what a link in them leads to, or has another name of a file in them. All are
    without links but `paths`."""
    named: dict[Inode, Path] = {}  # files with several names
    for top in paths:
        for path in chain((top,), map(Path, paths_below(str(top)))):
            if (path == top or path.is_symlink()) and (found := _find_writable(path, guarded, folders)):
                raise _exchangeable(path, "leads through", found)
            if (status := _file_status(path)) and status.st_nlink > 1:
                named[status.st_dev, status.st_ino] = path
    for folder in folders if named else ():
        for inside, _, files in os.walk(folder):
            for other in (Path(inside, name) for name in files):
                status = None if other.is_symlink() else _file_status(other)
                if status and (status.st_dev, status.st_ino) in named and _is_writable(other, folder, guarded):
                    raise _exchangeable(named[status.st_dev, status.st_ino], "is the same file as", other)


def _exchangeable(path: Path, relation: str, other: Path) -> SpecError:
    text = f"{printable(str(path))} {relation} {printable(str(other))}, which a program of the image could write"
    return SpecError(text, "put the file there itself; or envbuild run without --writable-dev")


def _file_status(path: Path) -> os.stat_result | None:
    """Return the status of a regular file, through links; None for anything else."""
    try:
        status = path.stat()
    except OSError:  # a link that leads nowhere, or removed meanwhile
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _is_writable(path: Path, folder: Path, guarded: Collection[Path]) -> bool:
    """Return whether a program can write a path in `folder`: it is in no part of that which is guarded."""
    parts = (part for part in guarded if part.is_relative_to(folder))
    return path.is_relative_to(folder) and not any(path.is_relative_to(part) for part in parts)


def _find_writable(path: Path, guarded: Collection[Path], folders: Collection[Path]) -> Path | None:
    """Return the first entry on the way to `path` that a program can exchange; else a folder that it can write, in
    which `path` is or which is below it; None if there is none.

    No mount is exchanged: that of a folder, of a guarded part, and of each folder on the way to one."""
    found: list[Path] = []

    def enter(folder: Path, name: bytes, last: bool) -> Step[Path]:
        entry = folder / os.fsdecode(name)
        if not any(part.is_relative_to(entry) for part in (*folders, *guarded)):
            found.extend(entry for other in folders if _is_writable(entry, other, guarded))
        target = os.fsencode(entry.readlink()) if entry.is_symlink() else None
        return Step(entry, target, is_folder=True)  # what is missing could be made

    with contextlib.suppress(LinkCycleError):
        if end := walk(Place((Path("/"),)), os.fsencode(path.absolute()), enter):
            place = end.node
            found.extend(place for folder in folders if _is_writable(place, folder, guarded))
            found.extend(folder for folder in folders if folder.is_relative_to(place) and folder not in guarded)
    return next(iter(found), None)
