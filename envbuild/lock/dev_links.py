"""Links by which a program of the image that may write a project folder could exchange specs and recipes of the caller:
the folder of these is read-only for it, and what a link in there leads to may not be."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from envbuild.core.errors import SpecError
from envbuild.core.link_walk import LinkCycleError, Place, Step, walk
from envbuild.core.text import printable


def check_ways(paths: Iterable[Path], guarded: Collection[Path], folders: Collection[Path]) -> None:
    """Raise SpecError if a program that may write `folders`, but for the parts `guarded`, could put something else in
    the place of one of the `paths`, or of a link in them. All are without links but `paths`."""
    for path in (way for item in paths for way in _with_links(item)):
        if found := _find_writable(path, guarded, folders):
            text = f"{printable(str(path))} leads through {printable(str(found))}, which a program of the image could"
            raise SpecError(f"{text} write", "put the file there itself; or envbuild run without --writable-dev")


def _with_links(path: Path) -> Iterator[Path]:
    """Yield a path, and all links below it."""
    yield path
    for folder, folders, files in os.walk(path):
        yield from (place for name in sorted((*folders, *files)) if (place := Path(folder, name)).is_symlink())


def _find_writable(path: Path, guarded: Collection[Path], folders: Collection[Path]) -> Path | None:
    """Return the first entry on the way to `path` that is in one of `folders`, and neither in a part that is guarded
    nor on the way to one; None if there is none."""
    found: list[Path] = []

    def enter(folder: Path, name: bytes, last: bool) -> Step[Path]:
        entry = folder / os.fsdecode(name)
        inside = any(entry.is_relative_to(other) and entry != other for other in folders)
        if inside and not any(entry.is_relative_to(part) or part.is_relative_to(entry) for part in guarded):
            found.append(entry)
        target = os.fsencode(entry.readlink()) if entry.is_symlink() else None
        return Step(entry, target, is_folder=True)  # what is missing could be made

    with contextlib.suppress(LinkCycleError):
        walk(Place((Path("/"),)), os.fsencode(path.absolute()), enter)
    return next(iter(found), None)
