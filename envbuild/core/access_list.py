"""Entries of POSIX access control lists that let further users and groups write (acl(5)).

With such a list the group's bits of the mode are its mask: a mode of 0664 may mean that another user writes."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

# linux/posix_acl_xattr.h: a version, then (tag, rights, id) of each entry
ATTRIBUTE, VERSION = "system.posix_acl_access", 2
ENTRY = struct.Struct("<HHI")
USER, GROUP, MASK, WRITE = 0x02, 0x08, 0x10, 2


class Writer(NamedTuple):
    """A user or a group that an entry names."""

    is_group: bool
    number: int


def named_writers(path: str) -> Iterator[Writer]:
    """Yield the users and groups that the access list of a file names and lets write; none for a file without one."""
    try:
        content = os.getxattr(path, ATTRIBUTE)
    except OSError:
        return
    if len(content) % ENTRY.size != 4 or int.from_bytes(content[:4], "little") != VERSION:
        return
    entries = list(ENTRY.iter_unpack(content[4:]))
    mask = next((rights for tag, rights, _ in entries if tag == MASK), WRITE)
    for tag, rights, number in entries:
        if tag in (USER, GROUP) and rights & mask & WRITE:
            yield Writer(tag == GROUP, number)
