"""Checks of the members of a layer."""

from __future__ import annotations

import os

from envbuild.core.errors import EnvbuildError
from envbuild.oci.tar.fields import ODD_PART, is_plain_path
from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs.pack.index import BLOCK, CHAR, DIR, FIFO, FILE, HARDLINK, SYMLINK

LIMIT = 1 << 32  # of owners
NO_DEVICE = (0, 0)
SPECIAL = {Kind.HARDLINK: HARDLINK, Kind.FIFO: FIFO, Kind.CHAR: CHAR, Kind.BLOCK: BLOCK}


def check_path(path: bytes) -> None:
    """Raise EnvbuildError for a path that no layer may hold: absolute, with ``.``, ``..``, empty or overlong
    components, or with NUL.
    """
    if not path or is_plain_path(path):
        return
    if ODD_PART.search(path):
        raise EnvbuildError(
            f"a layer has an invalid path: {os.fsdecode(path)!r}",
            hint="layers hold relative paths without '.', '..' or NUL, and names of at most 255 bytes",
        )


def check_member(member: Member) -> int:
    """Return the code of a member's kind. Raises EnvbuildError for a member that cannot be stored."""
    path, kind, link = member.path, member.kind, member.link
    check_path(path)
    if not 0 <= member.mode <= 0o7777 or not (0 <= member.uid < LIMIT and 0 <= member.gid < LIMIT):
        raise EnvbuildError(
            f"{os.fsdecode(path)!r} has mode {member.mode:o} and owner {member.uid}:{member.gid},"
            " which cannot be stored"
        )
    if member.xattrs and any(not name or b"=" in name or b"\0" in name for name in member.xattrs):
        raise EnvbuildError(f"{os.fsdecode(path)!r} has an extended attribute whose name no tar can hold")
    if member.device != NO_DEVICE and kind is not Kind.CHAR and kind is not Kind.BLOCK:
        raise EnvbuildError(f"{os.fsdecode(path)!r} is not a device but has the number of one")
    if kind is Kind.FILE:  # an enumeration's hash is slow: no dictionary look-up for nearly every member
        code = FILE
    else:
        if member.size:
            raise EnvbuildError(f"{os.fsdecode(path)!r} is not a file but has data")
        if kind is Kind.SYMLINK:
            # kernels refuse a target longer than a page
            if not 0 < len(link) < 4096 or b"\0" in link:
                raise EnvbuildError(
                    f"{os.fsdecode(path)!r} is a symlink whose target has {len(link)} bytes; 1 to 4095 are possible"
                )
            return SYMLINK
        code = DIR if kind is Kind.DIR else SPECIAL[kind]
    if link:
        if kind is not Kind.HARDLINK:
            raise EnvbuildError(f"{os.fsdecode(path)!r} is not a link but has a target")
        check_path(link)
    if code in (CHAR, BLOCK) and not (0 <= member.device[0] < 1 << 12 and 0 <= member.device[1] < 1 << 20):
        major, minor = member.device
        raise EnvbuildError(f"{os.fsdecode(path)!r} is a device {major}:{minor}, which cannot be stored")
    if not path and kind is not Kind.DIR:
        raise EnvbuildError("the root of a layer is not a directory")
    return code
