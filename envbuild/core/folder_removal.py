"""Removal of folders, however deep they are: `shutil.rmtree` needs a stack frame and a descriptor for each level."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path


def remove_folder(path: Path) -> None:
    """Remove a folder and all that it contains. Raises OSError if something remains."""
    discard_folder(path)
    if path.is_dir():
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))


def discard_folder(path: Path) -> None:
    """Remove a folder, or what can be removed of it."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if path.is_dir() and not path.is_symlink():
        remove_level_by_level(path)


def remove_level_by_level(top: Path) -> None:
    """Remove a folder whose folders are all moved into it before they are removed, so that no path gets long."""
    prefix = f"{top}/.{os.urandom(8).hex()}-"
    todo, count = [str(top)], 0
    while todo:
        folder = todo.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)  # noqa: PTH108  # names may be no text
                        continue
                    count += 1
                    moved = f"{prefix}{count}"
                    os.rename(entry.path, moved)  # noqa: PTH104
                    todo.append(moved)
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106
    with contextlib.suppress(OSError):
        top.rmdir()
