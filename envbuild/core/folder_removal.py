"""The one removal of folders: of any depth, and of nothing outside of them.

Another user may be able to write in the folder, and can put a link in the place of any name: every folder is opened
below the one that has it, through no link, and what it contains is removed by that descriptor. `shutil.rmtree` needs a
stack frame and a descriptor for each level, so that a deep tree of an image makes it fail.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
DEPTH = 10  # folders that are open at once; `ulimit -n` may be small


def remove_folder(path: Path) -> None:
    """Remove a folder and all that it contains, if it exists. Raises OSError if something remains, or if it is not
    a folder."""
    with contextlib.ExitStack() as stack:
        try:
            above = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, above)
            top = os.open(path.name, OPEN, dir_fd=above)
        except FileNotFoundError:
            return
        stack.callback(os.close, top)
        errors = _remove_content(top)
        try:
            os.rmdir(path.name, dir_fd=above)
        except FileNotFoundError:
            return
        except OSError as error:
            first = errors[0] if errors else error
            raise OSError(first.errno, first.strerror, str(path)) from error


def remove_opened(folder: int, name: str, above: int) -> None:
    """Remove an open folder, which is called `name` in the open folder `above`, with all that it contains. Raises
    OSError if something remains."""
    if errors := _remove_content(folder):
        raise errors[0]
    os.rmdir(name, dir_fd=above)


def discard_folder(path: Path) -> None:
    """Remove a folder, or what can be removed of it."""
    with contextlib.suppress(OSError):
        remove_folder(path)


def _remove_content(top: int) -> list[OSError]:
    """Remove what the open folder `top` contains; return what failed.

    A folder at the greatest depth is moved into `top` before it is opened, so that no way gets long.
    """
    errors: list[OSError] = []
    prefix, moved = f".{os.urandom(8).hex()}-", 0
    way = [(top, "", _remove_files(top, errors))]  # open folders, the name of each in the one before, and its folders
    try:
        while way:
            folder, name, left = way[-1]
            try:
                if not left:
                    way.pop()
                    if way:
                        os.close(folder)
                        os.rmdir(name, dir_fd=way[-1][0])
                elif len(way) < DEPTH:
                    inner = left.pop()
                    child = os.open(inner, OPEN, dir_fd=folder)
                    way.append((child, inner, _remove_files(child, errors)))
                else:
                    moved += 1
                    os.rename(left.pop(), f"{prefix}{moved}", src_dir_fd=folder, dst_dir_fd=top)
                    way[0][2].append(f"{prefix}{moved}")
            except OSError as error:
                errors.append(error)
    finally:
        for folder, _, _ in way[1:]:
            os.close(folder)
    return errors


def _remove_files(folder: int, errors: list[OSError]) -> list[str]:
    """Remove what an open folder contains but for folders; return their names."""
    folders = []
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except OSError as error:
        errors.append(error)
        return []
    for entry in found:
        try:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
        except OSError as error:
            errors.append(error)
    return folders
