"""The errors of Python's readers of archives that mean: the archive is damaged, or not one at all."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib

# RuntimeError: an encrypted zip archive; NotImplementedError, a kind of it: an unknown method of one. LookupError: an
# empty name in a zip archive
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    ValueError,
    OverflowError,
    RuntimeError,
    LookupError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
)


def is_damage(error: BaseException) -> bool:
    """Return whether the archive is at fault. gzip and bzip2 raise an OSError without a number; one with a number is of
    this machine, or of a name in the archive."""
    return isinstance(error, DAMAGE) or (isinstance(error, OSError) and error.errno is None)
