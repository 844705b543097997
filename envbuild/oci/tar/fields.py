"""Fields of tar headers: numbers, names, and the records of extended headers.

Formats: POSIX.1-2017, pax(1), "ustar Interchange Format" and "pax Interchange Format"; GNU tar manual, "Basic Tar
Format" (base-256 numbers); ``SCHILY.xattr.NAME`` as star, GNU tar and the OCI image spec write it. bsdtar writes
``LIBARCHIVE.xattr.NAME`` beside it (libarchive's tar(5)), which Go's archive/tar and GNU tar do not know: it is not
read here either. Limits of names and attributes are Linux' own: path_resolution(7), xattr(7).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from envbuild.core.errors import InputError
from envbuild.core.inode_limits import xattr_fault

# Bytes of a path (PATH_MAX without the NUL), of a part of it (NAME_MAX), of a symlink's target.
MAX_PATH, MAX_NAME, MAX_TARGET = 4095, 255, 4095
MAX_SIZE = MAX_TIME = (1 << 63) - 1
SCHILY = b"SCHILY.xattr."
# Docker and podman set them where they unpack a layer, and hide or show other files by them. No program writes these
# into a layer; buildah without root writes user.overlay.origin, and perhaps others, which are left out here.
OVERLAY = b"trusted.overlay.", b"user.overlay.redirect", b"user.overlay.metacopy"
OCTAL = re.compile(rb"[\0 ]*([0-7]*) *(?:\0.*)?", re.DOTALL)
# A part of a path that is empty, ``.`` or ``..``, or overlong, or a NUL: what no plain relative path has.
ODD_PART = re.compile(rb"(?:\A|/)\.{0,2}(?:/|\Z)|[^/]{256}|\0")
TIME = re.compile(rb"(-?)([0-9]{1,20})(?:\.([0-9]*))?")
HINT = "use another image, or ask its publisher to push it again"

Record = tuple[bytes, bytes]


class LayerError(InputError):
    """Malformed layer. The message is the cause, written to follow ``LAYER cannot be unpacked:``."""

    def __init__(self, message: str, hint: str = HINT, where: str = "") -> None:
        super().__init__(message, hint, where)


class UnusableNameError(LayerError):
    """Layer with a name that no program on Linux can use. The layer is as it was built: a tar has no such limit."""

    def __init__(self, what: str, name: bytes, size: int, limit: str) -> None:
        top = os.fsdecode(name.lstrip(b"./").split(b"/")[0][:40])
        super().__init__(
            f"{what} {quote_name(name)} has {size} bytes, and Linux allows {limit}",
            f"no program can open that file, in any container: remove it where the image is built (it is below /{top})",
        )


class LayerTooLargeError(LayerError):
    """Layer that exceeds a limit: it is not read to its end."""


def quote_name(name: bytes) -> str:
    """Return a name as messages print it: in quotes, and not longer than a line."""
    return repr(os.fsdecode(name if len(name) <= 200 else name[:200] + b"..."))


def parse_number(field: bytes, what: str) -> int:
    """Return the number in a field of a header: octal digits between spaces and NULs (none: 0), or base-256, whose
    first bit is set and whose second is the sign.

    `what`: the name of the field, for the LayerError.
    """
    digits = field[:-1]
    if digits.isdigit() and field[-1] < 33:  # nearly every field
        try:
            return int(digits, 8)
        except ValueError:
            pass  # 8 or 9: reported below
    if field[0] & 0x80:
        bits = 8 * len(field) - 1
        value = int.from_bytes(field, "big") & ((1 << bits) - 1)
        return value - (1 << bits) if field[0] & 0x40 else value
    found = OCTAL.fullmatch(field)
    if found is None:
        raise LayerError(f"a header contains {quote_name(field)} as its {what}, which is not a number")
    return int(found[1] or b"0", 8)


def parse_decimal(value: bytes, what: str) -> int:
    """Return the number in a record of an extended header. Raises LayerError."""
    if not value.isdigit() or len(value) > 20:
        raise LayerError(f"an extended header contains {quote_name(value)} as its {what}, which is not a number")
    return int(value)


def parse_time(value: bytes) -> int:
    """Return a time in a record, rounded down to whole seconds. Raises LayerError."""
    found = TIME.fullmatch(value)
    if found is None:
        raise LayerError(f"an extended header contains {quote_name(value)} as a time, which is not a time")
    whole = int(found[2])
    if not found[1]:
        return whole
    return -whole - 1 if (found[3] or b"").strip(b"0") else -whole


def parse_records(body: bytes) -> list[Record]:
    """Return the records (key, value) of an extended header: ``LENGTH KEY=VALUE\\n``, whose length counts itself.

    Raises LayerError.
    """
    found: list[Record] = []
    at, end = 0, len(body)
    while at < end:
        space = body.find(b" ", at, at + 8)
        digits = body[at : max(space, at)]
        if not digits.isdigit():
            if body[at:].strip(b"\0"):
                raise LayerError("an extended header is damaged")
            break  # padding that some writers count
        after = at + int(digits)
        key, equals, value = body[space + 1 : max(after - 1, 0)].partition(b"=")
        if not space < after - 1 < end or body[after - 1] != 10 or not equals or not key:
            raise LayerError("an extended header is damaged")
        found.append((key, value))
        at = after
    return found


def parse_xattrs(found: Iterable[Record]) -> Mapping[bytes, bytes]:
    """Return the extended attributes in records, by full name. Raises LayerError."""
    attributes = {key[len(SCHILY) :]: value for key, value in found if key.startswith(SCHILY)}
    for name, value in attributes.items():
        if name.startswith(OVERLAY):
            raise LayerError(f"it has the attribute {quote_name(name)}, by which an overlay hides other files")
        if fault := xattr_fault(name, value):
            raise LayerError(f"the extended attribute {quote_name(name)} {fault}")
    return attributes


def is_plain_path(path: bytes) -> bool:
    """Return whether a path, which is not empty, is sure to have no odd part: nearly every one, at the speed of C."""
    return (
        path[0] not in b"/."
        and path[-1] != 47
        and not (b"/." in path or b"//" in path or 0 in path)
        and (len(path) <= MAX_NAME or max(map(len, path.split(b"/"))) <= MAX_NAME)
    )


def member_path(name: bytes) -> bytes:
    """Return a path as `envbuild.oci.tar.member.Member` has it: relative, ``b""`` the root.

    An absolute one is taken relative to the root, as container engines do. Raises LayerError for ``..``.
    """
    found = path_parts(name)
    if b".." in found:
        raise LayerError(f"it contains the path {quote_name(name)}, which leads out of it")
    return b"/".join(found)


def hard_link_target(name: bytes, link: bytes) -> bytes:
    """Return the path of the file that `name` is a hard link to. ``..`` is resolved by the names alone, as Docker does.

    Raises LayerError.
    """
    if link and len(link) <= MAX_PATH and is_plain_path(link):
        return link
    found: list[bytes] = []
    for part in path_parts(link):
        if part != b"..":
            found.append(part)
        elif found:
            found.pop()
        else:
            raise LayerError(f"it calls {quote_name(name)} another name of {quote_name(link)}, which is outside of it")
    if not found:
        raise LayerError(f"it calls {quote_name(name)} another name of {quote_name(link)}, which is not a file")
    return b"/".join(found)


def path_parts(name: bytes) -> list[bytes]:
    """Return the parts of a path without empty ones and ``.``. Raises LayerError for one that Linux refuses."""
    if b"\0" in name:
        raise LayerError(f"it contains the path {quote_name(name)}, which has a NUL in it")
    found = [part for part in name.split(b"/") if part not in (b"", b".")]
    if len(name) > MAX_NAME:
        for part in found:
            if len(part) > MAX_NAME:
                raise UnusableNameError("the name", part, len(part), f"{MAX_NAME} (NAME_MAX)")
        if len(name) > MAX_PATH and (size := len(b"/".join(found))) > MAX_PATH:
            raise UnusableNameError("the path", name, size, f"{MAX_PATH} (PATH_MAX)")
    return found
