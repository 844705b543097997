"""Checks of a squashfs file before squashfuse or unsquashfs reads it (`confined_program`), and of what was unpacked."""

from __future__ import annotations

import os
from pathlib import Path

from envbuild.core.bombs import UnpackedFiles
from envbuild.core.errors import VerifyError


def check_content(image: Path) -> None:
    """Check all that squashfuse reads of a file but the content of its files: it runs outside of the box. Raises
    VerifyError."""
    from envbuild.squashfs.read.sound_entries import sound_entries
    from envbuild.squashfs.read.tree import SquashTree

    with SquashTree(image) as tree:
        for _ in sound_entries(tree):
            pass


def check_unpacked(image: Path) -> None:
    """Do as `check_content` for unsquashfs, which would also follow a link that has the same name as a folder
    (CVE-2021-41072); and 80 kB can be 2 GB. Raises VerifyError."""
    from envbuild.squashfs.read.inode import REGULAR
    from envbuild.squashfs.read.sound_entries import sound_entries
    from envbuild.squashfs.read.tree import SquashTree

    files = UnpackedFiles(image.stat().st_size)
    with SquashTree(image) as tree:
        for (path, inode), is_new in sound_entries(tree):  # further names of one file are links
            try:
                files.add(inode.size if inode.kind == REGULAR and is_new else 0, os.fsdecode(path))
            except ValueError as error:
                hint = "mount it instead: install squashfuse, or run as root"
                raise VerifyError(f"the file is not unpacked: {error}, which no real image does", hint) from None


def has_all_but_devices(image: Path, target: Path, *, owners: bool = True) -> bool:
    """Return whether everything of a file but device nodes was unpacked, files with all their bytes: only root of the
    machine can make a device node, and none can be opened in a box, however the file is mounted. Raises VerifyError.

    owners: whether owners are compared, too.

    unsquashfs skips what it cannot make, and its exit code is the same for an owner, a link and a file."""
    from envbuild.squashfs.read.inode import BLOCK_DEVICE, CHAR_DEVICE, REGULAR
    from envbuild.squashfs.read.tree import SquashTree

    with SquashTree(image) as tree:
        for path, inode in tree.walk():
            if inode.kind not in (BLOCK_DEVICE, CHAR_DEVICE):
                try:
                    status = (target / os.fsdecode(path)).lstat()
                except OSError:
                    return False
                if owners and (status.st_uid, status.st_gid) != (inode.uid, inode.gid):
                    return False
                if inode.kind == REGULAR and status.st_size != inode.size:
                    return False
    return True
