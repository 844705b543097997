"""Owners and extended attributes that Linux can store: chown(2), xattr(7)."""

from __future__ import annotations

MAX_ID = (1 << 32) - 2  # the last number means "no user"
MAX_XATTR_NAME, MAX_XATTR = 255, 1 << 16  # bytes of the name and of the value of an extended attribute


def xattr_fault(name: bytes, value: bytes) -> str:
    """Return why no file system can store an attribute, as the end of a sentence about it; "" if one can."""
    if not 0 < len(name) <= MAX_XATTR_NAME or b"\0" in name:
        return "has a name that no file system can store"
    if len(value) > MAX_XATTR:
        return f"has {len(value)} bytes; {MAX_XATTR} are possible"
    return ""
