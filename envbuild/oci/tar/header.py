"""Header of a member: its fields, and whether their values are possible.

Formats: POSIX.1-2017, pax(1), "ustar Interchange Format"; the tar of Unix version 7.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from envbuild.core.inode_limits import MAX_ID
from envbuild.oci.tar.fields import (
    MAX_SIZE,
    MAX_TARGET,
    MAX_TIME,
    LayerError,
    UnusableNameError,
    hard_link_target,
    parse_number,
    quote_name,
)
from envbuild.oci.tar.member import Kind

POSIX, GNU, STAR = b"ustar\0", b"ustar  \0", b"tar\0"  # of magic and version; of the end

# types of headers
OLD_FILE, FILE, LINK, CONTIGUOUS, GNU_SPARSE = b"\x00017S"
FOLDER = ord("5")
KINDS: Mapping[int, Kind] = {
    OLD_FILE: Kind.FILE,
    FILE: Kind.FILE,
    CONTIGUOUS: Kind.FILE,
    LINK: Kind.HARDLINK,
    ord("2"): Kind.SYMLINK,
    ord("3"): Kind.CHAR,
    ord("4"): Kind.BLOCK,
    FOLDER: Kind.DIR,
    ord("6"): Kind.FIFO,
}
NO_DEVICE = (0, 0)
# A time that Go reads as a number, too: octal digits, base-256 of 64 bits, or nothing.
GNU_TIME = re.compile(rb"[ \0]*|\0.*| *[0-7]+[ \0]*|\x80\0{3}[\0-\x7f].{7}|\xff{4}[\x80-\xff].{7}", re.DOTALL)


def read_names(head: bytes) -> tuple[bytes, bytes]:
    """Return (name, target of a link). A field that is full has no NUL. Raises LayerError."""
    end = head.find(0)
    name = head[: end if 0 <= end < 100 else 100]
    if head[345]:
        if head[257:263] == POSIX:  # with any version, as for GNU tar and Go
            if head[508:] == STAR and head[475]:  # Go ends a full prefix there, and GNU tar does not
                raise _ambiguous_prefix(name)
            prefix = head[345:500].partition(b"\0")[0]
            name = prefix + b"/" + name
        elif head[257:265] == GNU:
            for field in (head[345:357], head[357:369]):
                _check_gnu_time(field, name)
    return name, head[157:257].partition(b"\0")[0] if head[157] else b""


def _check_gnu_time(field: bytes, name: bytes) -> None:
    """Raise LayerError for a header of GNU tar with a text in the place of a time of access or change: Go's archive/tar
    reads a prefix there, as its releases before 1.8 wrote it, and GNU tar does not."""
    if not GNU_TIME.fullmatch(field):
        raise _ambiguous_prefix(name)


def _ambiguous_prefix(name: bytes) -> LayerError:
    return LayerError(f"the header of {quote_name(name)} has a prefix that programs read differently")


def read_owner(field: bytes) -> tuple[int, int, int]:
    """Return (permissions, user, group) of the fields for them."""
    mode = parse_number(field[:8], "mode")
    if mode < 0:
        raise LayerError(f"a header contains the mode {mode}")
    return mode & 0o7777, check_id(parse_number(field[8:16], "owner")), check_id(parse_number(field[16:], "group"))


def check_id(value: int) -> int:
    """Return `value` if it is a valid user or group. Raises LayerError."""
    if not 0 <= value <= MAX_ID:
        raise LayerError(f"it contains a file of the user or group {value}, which Linux does not have")
    return value


def check_numbers(name: bytes, size: int, used: int, mtime: int) -> None:
    """Raise LayerError for an impossible size or time; `used` bytes of the data are the map of a sparse file."""
    if not 0 <= size <= MAX_SIZE or size < used:
        raise LayerError(f"{quote_name(name)} has a size of {size} bytes, which cannot be")
    if not -MAX_TIME <= mtime <= MAX_TIME:
        raise LayerError(f"{quote_name(name)} is of {mtime} seconds after 1970, which cannot be")


def read_device(head: bytes, name: bytes) -> tuple[int, int]:
    """Return (major, minor). Raises LayerError."""
    found = parse_number(head[329:337], "device"), parse_number(head[337:345], "device")
    if not (0 <= found[0] < 1 << 12 and 0 <= found[1] < 1 << 20):
        raise LayerError(f"the device {quote_name(name)} has the numbers {found}, which Linux does not have")
    return found


def link_target(kind: Kind, name: bytes, link: bytes, path: bytes) -> bytes:
    """Return the target of a link; empty for a member that is not a link. `path` is the path of the member.

    Raises LayerError.
    """
    if kind is Kind.HARDLINK:
        link = hard_link_target(name, link)
        if link == path:
            raise LayerError(f"it calls {quote_name(name)} another name of itself")
        return link
    if kind is Kind.SYMLINK:
        if len(link) > MAX_TARGET and b"\0" not in link:
            raise UnusableNameError(f"the target of {quote_name(name)},", link, len(link), f"{MAX_TARGET} (PATH_MAX)")
        if not link or b"\0" in link:
            raise LayerError(f"the symbolic link {quote_name(name)} has a target that cannot be: {quote_name(link)}")
        return link
    return b""
