"""Records of the extended headers of tar archives (POSIX.1-2017, pax(1)), before Python's `tarfile` reads them."""

from __future__ import annotations

import re
import tarfile

MAX_DIGITS = 255  # in a row: the time that `tarfile` of Python 3.11.7 takes to search them grows with their square
DIGITS, RECORD = re.compile(rb"[0-9]+"), re.compile(rb"([0-9]{1,9}) ([^=\0][^=]*)=")
# Go's archive/tar (Docker, containerd, skopeo) applies no record of a global header, `tarfile` and GNU tar all of them.
MEANING = frozenset({b"path", b"linkpath", b"size", b"hdrcharset"})
SPARSE, SIZE = b"GNU.sparse.", re.compile(rb"[0-9]{1,19}")


def check_records(content: bytes, *, shared: bool) -> int:
    """Check the records of an extended header (``LENGTH KEY=VALUE`` and a line feed), and return how many there are.
    `shared`: they are of a global header.

    Raises ReadError for those that take long to read, and those that other programs read differently."""
    if any(run.end() - run.start() > MAX_DIGITS for run in DIGITS.finditer(content)):
        raise fault(f"has more than {MAX_DIGITS} digits in a row")
    at, end, count = 0, len(content.rstrip(b"\0")), 0
    while at < end:
        begin = RECORD.match(content, at)
        after = at + int(begin[1]) if begin else 0
        if not begin or not begin.end() < after <= end or content[after - 1 : after] != b"\n":
            raise fault("has a record of another form")
        key, value = begin[2], content[begin.end() : after - 1]
        at, count = after, count + 1
        if shared and (key in MEANING or key.startswith(SPARSE)):
            raise fault(f"sets one {key[:40].decode(errors='replace')!r} for all members")
        if key in (b"path", b"linkpath") and (not value or b"\0" in value):
            raise fault("has a name that is none")
        if key == b"size" and not SIZE.fullmatch(value):
            raise fault("has a size that is not a number")
    return count


def fault(why: str) -> tarfile.ReadError:
    """Return the error for an extended header."""
    return tarfile.ReadError(f"an extended header {why}")
