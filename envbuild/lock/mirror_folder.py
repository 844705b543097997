"""The folder of a mirror while a command writes it: one process at a time, with a folder of its own for files that are
not finished.

Others may be able to write the mirror, and can rename any entry of it: so that folder is held by a descriptor, and what
a killed process left is removed only where no other user could have given its name to something else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from envbuild.core.folder_removal import remove_opened
from envbuild.core.ownership import can_others_rename
from envbuild.core.store.lock_holder import wait_for_lock
from envbuild.core.unfinished_names import unfinished_name, unfinished_names

NAME = "mirror"
LONGEST = 1800.0  # seconds for another command: copying large inputs to a slow file system takes some minutes
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def exclusive_access(folder: Path, report: Callable[[str], object]) -> Iterator[Path]:
    """Let one process at a time write to a folder. Yield a path to a folder in it for unfinished files, which is
    removed at the end. `report`: is called with who holds the folder, if that takes long.

    Raises TimeoutError after `LONGEST` seconds, OSError."""
    with contextlib.ExitStack() as stack:
        above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, above)
        try:
            waiting = "{} is in use by {}; waiting"
            wait_for_lock(above, fcntl.LOCK_EX, lambda who: report(waiting.format(folder, who)), LONGEST)
            remove_unfinished(above)
        except TimeoutError:
            raise
        except OSError:
            pass  # a file system without locks: other processes are not excluded, and may be writing
        name = unfinished_name(NAME)
        os.mkdir(name, 0o700, dir_fd=above)
        inner: int = os.open(name, OPEN, dir_fd=above)
        stack.callback(os.close, inner)
        stack.callback(discard, inner, name, above)
        yield Path(f"/proc/self/fd/{inner}")


def remove_unfinished(above: int) -> None:
    """Remove what killed processes of this user left in an open folder, unless others may rename entries of it."""
    if can_others_rename(above):
        return
    for name in filter(unfinished_names(NAME).fullmatch, os.listdir(above)):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            inner: int = os.open(name, OPEN, dir_fd=above)
            stack.callback(os.close, inner)
            if os.fstat(inner).st_uid == os.geteuid():
                remove_opened(inner, name, above)


def discard(inner: int, name: str, above: int) -> None:
    """Remove the folder of this process, or what can be removed of it."""
    with contextlib.suppress(OSError):
        remove_opened(inner, name, above)
