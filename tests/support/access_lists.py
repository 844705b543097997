"""Access control lists of files, as the kernel stores them (acl(5), linux/posix_acl_xattr.h)."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from envbuild.core.access_lists import ACCESS

OWNER, USER, OWN_GROUP, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20  # acl(5), as the kernel stores them


def set_list(path: Path, *entries: tuple[int, int, int], mask: int = 7, own: int = 4) -> None:
    """Give a file entries of further users and groups; skip where its file system has none."""
    rows = sorted([(OWNER, 6, -1), *entries, (OWN_GROUP, own, -1), (MASK, mask, -1), (OTHER, 4, -1)])
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)
    try:
        os.setxattr(path, ACCESS, content)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip("this file system has no access control lists")
