"""Writing an image although a pack of the store is damaged: the pack is dropped and made again from its layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from envbuild.core.console import Reporter
from envbuild.core.errors import DamagedPackError

T = TypeVar("T")


def write_again_if_damaged(write: Callable[[], T], packs: Sequence[Path], reporter: Reporter) -> T:
    """Return `write()`, which makes missing packs and writes an image.

    If it meets a damaged pack, all `packs` are read, the damaged ones are removed, and it is called once more. Raises
    what `write` does.
    """
    try:
        return write()
    except DamagedPackError:
        if not drop_damaged_packs(packs, reporter):
            reporter.warn("the image was damaged while it was written: it is written again")
    return write()


def drop_damaged_packs(packs: Sequence[Path], reporter: Reporter) -> list[Path]:
    """Read all of `packs` and remove the damaged ones; return those."""
    from envbuild.squashfs.pack.checksums import check_pack

    dropped = []
    for path in dict.fromkeys(packs):
        try:
            if path.is_file():
                check_pack(path)
        except DamagedPackError as error:
            path.unlink(missing_ok=True)
            reporter.warn(f"{error.message}; it is made again: {path}")
            dropped.append(path)
    return dropped
