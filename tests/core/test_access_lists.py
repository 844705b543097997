"""Access control lists of a folder: removed, without a right that they did not give."""

from __future__ import annotations

import errno
import os
import stat
import struct
from pathlib import Path

import pytest

from envbuild.core.access_lists import ACCESS, DEFAULT, remove_access_lists

NO_ID = 0xFFFFFFFF
SOMEBODY = 4711


def acl(group: int, mask: int, other: int) -> bytes:
    """Return a list as linux/posix_acl_xattr.h describes it: owner, a named user, the group, the mask, others."""
    entries = [(0x01, 7, NO_ID), (0x02, 7, SOMEBODY), (0x04, group, NO_ID), (0x10, mask, NO_ID), (0x20, other, NO_ID)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.mark.parametrize(
    ("group", "mask", "mode"), [(0o5, 0o7, 0o755), (0o0, 0o7, 0o705), (0o7, 0o7, 0o775), (0o7, 0o5, 0o755)]
)
@pytest.mark.parametrize("is_open", [True, False])
def test_the_group_may_do_what_its_entry_permitted(
    tmp_path: Path, group: int, mask: int, mode: int, is_open: bool
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    try:
        os.setxattr(above, DEFAULT, acl(group, mask, 0o5))
    except OSError as error:
        assert error.errno == errno.ENOTSUP
        pytest.skip(f"{tmp_path}: the file system has no access control lists")
    folder = above / "folder"
    folder.mkdir()
    assert ACCESS in os.listxattr(folder) and stat.S_IMODE(folder.stat().st_mode) == 0o705 | mask << 3
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        remove_access_lists(fd if is_open else folder)
    finally:
        os.close(fd)
    assert not {ACCESS, DEFAULT}.intersection(os.listxattr(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == mode
    (folder / "inner").mkdir()
    assert not os.listxattr(folder / "inner")


def test_a_folder_without_lists_is_as_before(tmp_path: Path) -> None:
    tmp_path.chmod(0o2751)
    remove_access_lists(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o2751
