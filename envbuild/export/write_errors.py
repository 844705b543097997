"""Errors of a file system that refuses to take the file of an image."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from envbuild.core.errors import PublishError

FULL_HINT = "free some space there (in the store: envbuild store gc), or name a file elsewhere: -o FILE"
AWAY_HINT = "the server of that file system, or of the store, does not answer: name a file elsewhere: -o FILE"
WRITE_HINTS = {
    errno.ENOSPC: FULL_HINT,
    errno.EDQUOT: FULL_HINT,
    errno.EROFS: "that file system is read-only: name a file elsewhere: -o FILE",
    # of this disk, or of the one that the content is read from: the error has no name
    errno.EIO: "a disk fails, of that file or of the store (dmesg): name a file elsewhere: -o FILE",
    **dict.fromkeys((errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EREMOTEIO), AWAY_HINT),
    errno.EFBIG: "that file system or ulimit -f allows no file so large: name a file elsewhere: -o FILE",
}


@contextlib.contextmanager
def raise_write_errors(out: Path) -> Iterator[None]:
    """Raise PublishError for `out` when the file system refuses a write to it or beside it; let errors of other files
    pass."""
    try:
        yield
    except OSError as error:
        named = isinstance(error.filename, (str, bytes))  # else by a descriptor
        beside = named and Path(os.fsdecode(error.filename)).parent == out.parent
        if not beside and error.errno not in WRITE_HINTS:
            raise
        hint = WRITE_HINTS.get(error.errno or 0, "name a file in a folder that you can write to: -o FILE")
        raise PublishError(f"the image cannot be written: {error.strerror}", hint, str(out)) from error
