"""Access control lists of folders (acl(5)). A default one decides the modes of what is made below, in place of the
umask: in the folder of a build it would decide bytes of the image."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

ACCESS_LISTS = ("system.posix_acl_access", "system.posix_acl_default")


def remove_access_lists(folder: int | Path) -> None:
    """Remove the lists of a folder, which is a path or open. Nothing where the file system has none."""
    for name in ACCESS_LISTS:
        with contextlib.suppress(OSError):
            os.removexattr(folder, name)
