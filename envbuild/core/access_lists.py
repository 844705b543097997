"""Access control lists (acl(5)). A default one of a folder decides the modes of what is made below, in place of the
umask: in the folder of a build it would decide bytes of the image. With a list of a file the bits of the group in its
mode are a mask: a mode of 0664 may mean that another user writes."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
ACCESS_LISTS = (ACCESS, DEFAULT)
# The attribute: a version, then (tag, permissions, id) of each entry (linux/posix_acl_xattr.h).
VERSION, ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
GROUP_OBJ, MASK = 0x04, 0x10  # the entry of the owning group; the most that a group or a named user may do
USER, GROUP = 0x02, 0x08  # entries of further users and groups
WRITE = 2


class Writer(NamedTuple):
    """A user or a group that an entry names."""

    is_group: bool
    number: int


def named_writers(path: str) -> Iterator[Writer]:
    """Yield the further users and groups that the list of a file lets write; none for a file without one."""
    try:
        value = os.getxattr(path, ACCESS)[VERSION.size :]
        entries = list(ENTRY.iter_unpack(value))
    except (OSError, struct.error):
        return
    mask = next((permissions for tag, permissions, _ in entries if tag == MASK), WRITE)
    for tag, permissions, number in entries:
        if tag in (USER, GROUP) and permissions & mask & WRITE:
            yield Writer(tag == GROUP, number)


def has_access_lists(path: str | Path) -> bool:
    """Return whether a file has a list; False on a file system without lists."""
    try:
        return not set(ACCESS_LISTS).isdisjoint(os.listxattr(path, follow_symlinks=False))
    except OSError:
        return False


def takes_writing(path: str | Path) -> bool:
    """Return whether a file's list takes the right to write from its group, which its mode shows: that is the mask."""
    try:
        return not _group_permissions(os.getxattr(path, ACCESS, follow_symlinks=False)) & WRITE
    except (OSError, struct.error):
        return False


def remove_access_lists(folder: int | Path) -> None:
    """Remove the lists of a folder, which is a path or open. Nothing where the file system has none.

    With a list, the bits of the group in a mode are its mask: afterwards they are what the group itself was permitted.
    """
    with contextlib.suppress(OSError):
        permitted = _group_permissions(os.getxattr(folder, ACCESS))
        mode = stat.S_IMODE(os.stat(folder).st_mode)  # noqa: PTH116 - folder may be open
        os.chmod(folder, mode & ~0o070 | permitted << 3)  # noqa: PTH101 - before: the mask then limits named users
    for name in ACCESS_LISTS:
        with contextlib.suppress(OSError):
            os.removexattr(folder, name)


def _group_permissions(value: bytes) -> int:
    """Return what an access list permits the owning group; 7 without entries."""
    entries = {tag: permissions for tag, permissions, _ in ENTRY.iter_unpack(value[VERSION.size :])}
    permitted: int = entries.get(GROUP_OBJ, 7) & entries.get(MASK, 7)
    return permitted
