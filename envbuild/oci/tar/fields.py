"""What the headers of a tar hold: numbers, names, and the records of extended headers.

Formats: POSIX.1-2017, pax(1), "ustar Interchange Format" and "pax Interchange Format"; GNU tar manual, "Basic Tar
Format" (base-256 numbers); ``SCHILY.xattr.NAME`` as star, GNU tar and the OCI image spec write it, and
``LIBARCHIVE.xattr.NAME`` (libarchive's tar(5): the name URL-encoded, the value in base64). Limits of names and
attributes are Linux' own: path_resolution(7), xattr(7).
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote_to_bytes

from envbuild.core.errors import InputError

PATH_MOST, NAME_MOST, TARGET_MOST = 4096, 255, 4095  # bytes of a path, of a part of it, of a symlink's target
XATTR_NAME_MOST, XATTR_MOST = 255, 1 << 16  # bytes of the name and of the value of an extended attribute
ID_MOST = (1 << 32) - 2  # the last number stands for no user (chown(2))
SIZE_MOST = TIME_MOST = (1 << 63) - 1
SCHILY, LIBARCHIVE = b"SCHILY.xattr.", b"LIBARCHIVE.xattr."
OCTAL = re.compile(rb"[\0 ]*([0-7]*) *(?:\0.*)?", re.DOTALL)
TIME = re.compile(rb"(-?)([0-9]{1,20})(?:\.([0-9]*))?")
HINT = "use another image, or have whoever made it push it again"

Record = tuple[bytes, bytes]


class LayerError(InputError):
    """A layer that is not sound: what is wrong, told so that ``LAYER cannot be unpacked:`` may stand before it."""

    def __init__(self, message: str, hint: str = HINT, where: str = "") -> None:
        super().__init__(message, hint, where)


def show(name: bytes) -> str:
    """A name in a message: in quotes, and not longer than a line."""
    return repr(os.fsdecode(name if len(name) <= 200 else name[:200] + b"..."))


def number(field: bytes, what: str) -> int:
    """The number in a field of a header: octal digits between spaces and NULs (none: 0), or base-256, whose first bit
    is set and whose second is the sign."""
    digits = field[:-1]
    if digits.isdigit() and field[-1] < 33:  # nearly every field
        try:
            return int(digits, 8)
        except ValueError:
            pass  # 8 or 9: told below
    if field[0] & 0x80:
        bits = 8 * len(field) - 1
        value = int.from_bytes(field, "big") & ((1 << bits) - 1)
        return value - (1 << bits) if field[0] & 0x40 else value
    found = OCTAL.fullmatch(field)
    if found is None:
        raise LayerError(f"a header holds {show(field)} as its {what}, which is no number")
    return int(found[1] or b"0", 8)


def decimal(value: bytes, what: str) -> int:
    """The number in a record of an extended header."""
    if not value.isdigit() or len(value) > 20:
        raise LayerError(f"an extended header holds {show(value)} as its {what}, which is no number")
    return int(value)


def seconds(value: bytes) -> int:
    """A time in a record, down to whole seconds."""
    found = TIME.fullmatch(value)
    if found is None:
        raise LayerError(f"an extended header holds {show(value)} as a time, which is none")
    whole = int(found[2])
    if not found[1]:
        return whole
    return -whole - 1 if (found[3] or b"").strip(b"0") else -whole


def records(body: bytes) -> list[Record]:
    """The records (key, value) of an extended header: ``LENGTH KEY=VALUE\\n``, whose length counts itself."""
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


def xattrs(found: Iterable[Record]) -> Mapping[bytes, bytes]:
    """The extended attributes that records name, by full name. Where both spellings stand, the raw one counts."""
    raw: dict[bytes, bytes] = {}
    encoded: dict[bytes, bytes] = {}
    for key, value in found:
        if key.startswith(SCHILY):
            raw[key[len(SCHILY) :]] = value
        elif key.startswith(LIBARCHIVE):
            try:
                content = base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
            except binascii.Error:
                raise LayerError(f"the value of {show(key)} is no base64") from None
            encoded[unquote_to_bytes(key[len(LIBARCHIVE) :])] = content
    for name, value in (encoded := {**encoded, **raw}).items():
        if not 0 < len(name) <= XATTR_NAME_MOST or b"\0" in name:
            raise LayerError(f"an extended attribute is called {show(name)}, which no file system holds")
        if len(value) > XATTR_MOST:
            raise LayerError(f"the extended attribute {show(name)} has {len(value)} bytes; {XATTR_MOST} are possible")
    return encoded


def path(name: bytes) -> bytes:
    """A member's path as `envbuild.oci.tar.member.Member` holds it: relative, ``b""`` the root.

    An absolute one is taken relative to the root, as container engines do. Raises LayerError for ``..``.
    """
    found = parts(name)
    if b".." in found:
        raise LayerError(f"it holds the path {show(name)}, which leads out of it")
    return b"/".join(found)


def target(name: bytes, link: bytes) -> bytes:
    """The path of the file that `name` is another name of. ``..`` is resolved by the names alone, as Docker does."""
    found: list[bytes] = []
    for part in parts(link):
        if part != b"..":
            found.append(part)
        elif found:
            found.pop()
        else:
            raise LayerError(f"it calls {show(name)} another name of {show(link)}, which is outside of it")
    if not found:
        raise LayerError(f"it calls {show(name)} another name of {show(link)}, which is no file")
    return b"/".join(found)


def parts(name: bytes) -> list[bytes]:
    if len(name) > PATH_MOST:
        raise LayerError(f"it holds the path {show(name)} of {len(name)} bytes; {PATH_MOST} are possible")
    if b"\0" in name:
        raise LayerError(f"it holds the path {show(name)}, which has a NUL in it")
    found = [part for part in name.split(b"/") if part not in (b"", b".")]
    if len(name) > NAME_MOST:
        for part in found:
            if len(part) > NAME_MOST:
                raise LayerError(f"it holds the name {show(part)} of {len(part)} bytes; {NAME_MOST} are possible")
    return found
