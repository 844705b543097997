"""The bytes that git receives of servers for one source: its repository and all submodules have one limit."""

from __future__ import annotations

import os
import threading
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path


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


def list_objects(folder: Path) -> dict[Path, os.stat_result]:
    """Return path → status of the objects and packs in a git directory, also of those that are not complete."""
    found: dict[Path, os.stat_result] = {}
    for inner, _, files in os.walk(folder / "objects"):
        for path in (Path(inner, name) for name in files):
            with suppress(FileNotFoundError):  # it has its final name by now
                found[path] = path.lstat()
    return found


def size_of_new(folder: Path, before: Container[Path]) -> int:
    """Return the bytes of the objects and packs that were not there before; some have two names for a moment."""
    new = (status for path, status in list_objects(folder).items() if path not in before)
    return sum({status.st_ino: status.st_size for status in new}.values())


def remove_new(folder: Path, before: Container[Path]) -> None:
    """Remove the objects and packs that a git that failed has stored: it finds later that others are missing."""
    remove_unfinished(folder)
    for path in list_objects(folder):
        if path not in before:
            path.unlink()


def remove_unfinished(folder: Path) -> None:
    """Remove what a git that failed or was killed has left in its folder: locks, and packs that may be large.

    Those of a server of plain files end in ``.temp``, and git would append to them (git, http.c)."""
    objects = folder / "objects"
    packs = (path for name in ("tmp_*", "*.temp", "*.temp.prev") for path in objects.rglob(name))
    for left in (*folder.glob("*.lock"), *(folder / "refs").rglob("*.lock"), *packs):
        with suppress(FileNotFoundError):
            left.unlink()
