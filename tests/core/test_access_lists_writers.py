"""Access control lists: other users who may write what the mode shows as the group's."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from envbuild.core.access_lists import ACCESS, Writer, named_writers
from envbuild.core.ownership import find_intrusion

pytestmark = pytest.mark.unit
STRANGER = 12345
OWNER, USER, OWN_GROUP, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20  # acl(5), as the kernel stores them


def set_list(path: Path, *entries: tuple[int, int, int], mask: int = 7) -> None:
    """Give a file entries of further users and groups; skip where its file system has none."""
    rows = sorted([(OWNER, 6, -1), *entries, (OWN_GROUP, 4, -1), (MASK, mask, -1), (OTHER, 4, -1)])
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)
    try:
        os.setxattr(path, ACCESS, content)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip("this file system has no access control lists")


def test_who_may_write_by_a_list(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch()
    assert list(named_writers(str(file))) == []
    set_list(file, (USER, 6, STRANGER), (GROUP, 4, 77), (GROUP, 2, 78))
    assert list(named_writers(str(file))) == [Writer(False, STRANGER), Writer(True, 78)]
    set_list(file, (USER, 6, STRANGER), mask=4)
    assert list(named_writers(str(file))) == []


def test_another_user_of_a_list_is_an_intrusion(tmp_path: Path) -> None:
    """The mode is 0664, of the caller's own group."""
    file = tmp_path / "key"
    file.touch()
    set_list(file, (USER, 6, STRANGER))
    users, own = frozenset((0, os.geteuid())), frozenset((file.stat().st_gid,))
    assert file.stat().st_mode & 0o020
    found = find_intrusion(str(file), users, lambda: own)
    assert found is not None
    assert found.reason.startswith(f"can be written by the user {STRANGER}, by its access list (owner ")
    assert find_intrusion(str(file), users | {STRANGER}, lambda: own) is None
