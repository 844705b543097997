"""What the header of a member says by itself, and whether that can be.

Formats: POSIX.1-2017, pax(1), "ustar Interchange Format"; the tar of Unix version 7.
"""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.oci.tar.fields import ID_MOST, SIZE_MOST, TARGET_MOST, TIME_MOST, LayerError, number, show, target
from envbuild.oci.tar.member import Kind

POSIX, STAR = b"ustar\x0000", b"tar\0"

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


def read_names(head: bytes) -> tuple[bytes, bytes]:
    """Return (name, target of a link). A field that is full has no NUL."""
    end = head.find(0)
    name = head[: end if 0 <= end < 100 else 100]
    if head[257:265] == POSIX and head[345]:
        prefix = head[345 : 476 if head[508:] == STAR else 500].partition(b"\0")[0]
        name = prefix + b"/" + name
    return name, head[157:257].partition(b"\0")[0] if head[157] else b""


def read_owner(field: bytes) -> tuple[int, int, int]:
    """Return (permissions, user, group) of the fields for them."""
    mode = number(field[:8], "mode")
    if mode < 0:
        raise LayerError(f"a header holds the mode {mode}")
    return mode & 0o7777, identity(number(field[8:16], "owner")), identity(number(field[16:], "group"))


def identity(value: int) -> int:
    """Return `value` when it can be a user or group."""
    if not 0 <= value <= ID_MOST:
        raise LayerError(f"it holds a file of the user or group {value}, which Linux does not have")
    return value


def check_numbers(name: bytes, size: int, used: int, mtime: int) -> None:
    """Raise LayerError for a size or a time that cannot be; `used` bytes of the data are the map of a sparse file."""
    if not 0 <= size <= SIZE_MOST or size < used:
        raise LayerError(f"{show(name)} has a size of {size} bytes, which cannot be")
    if not -TIME_MOST <= mtime <= TIME_MOST:
        raise LayerError(f"{show(name)} is of {mtime} seconds after 1970, which cannot be")


def read_device(head: bytes, name: bytes) -> tuple[int, int]:
    """Return (major, minor)."""
    found = number(head[329:337], "device"), number(head[337:345], "device")
    if not (0 <= found[0] < 1 << 12 and 0 <= found[1] < 1 << 20):
        raise LayerError(f"the device {show(name)} has the numbers {found}, which Linux does not have")
    return found


def link_target(kind: Kind, name: bytes, link: bytes, place: bytes) -> bytes:
    """Return what a member is a link to; nothing for one that is none. `place` is the path of the member."""
    if kind is Kind.HARDLINK:
        link = target(name, link)
        if link == place:
            raise LayerError(f"it calls {show(name)} another name of itself")
        return link
    if kind is Kind.SYMLINK:
        if not 0 < len(link) <= TARGET_MOST or b"\0" in link:
            raise LayerError(f"the symbolic link {show(name)} has a target that cannot be: {show(link)}")
        return link
    return b""
