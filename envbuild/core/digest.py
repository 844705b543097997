"""Digests of files."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from envbuild.core.bombs import most_unpacked
from envbuild.core.console import Reporter
from envbuild.core.errors import VerifyError
from envbuild.core.regular_file import NotRegularError, TooLargeError, open_regular

CHUNK = 1 << 20
MOST_PARTS = 10_000  # of a file with holes
LARGEST = 1 << 40  # bytes of a file of another user that is read: ten minutes
UNREADABLE, HOLLOW = "no regular file that this user may read", "far more bytes than are on the disk"


def file_digest(path: Path, *, follow: bool = True, progress: Callable[[int], object] | None = None) -> str:
    """Return the sha256 (hex) of a regular file; `follow`: or of a symbolic link to one. Raises NotRegularError, and
    TooLargeError for one of holes: another user can put petabytes there, which need no disk.

    `progress` is called with the bytes that were read.
    """
    with open_regular(path, follow=follow) as file:
        if is_hollow(file.fileno()):
            raise TooLargeError(f"{path} has {HOLLOW}")
        if progress is None:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        digest = hashlib.sha256()
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            progress(len(chunk))
        return digest.hexdigest()


def copy_digested(source: IO[bytes], target: IO[bytes]) -> str:
    """Copy an open file, as long as it is now, into another. Return the sha256 (hex) of what was copied.

    Raises OSError before anything is written: TooLargeError for a file of holes, ENOSPC where the disk of `target` has
    less room, which the file of another user could fill otherwise."""
    if is_oversized(source.fileno()):
        raise TooLargeError(HOLLOW)
    left, disk = os.fstat(source.fileno()).st_size, os.fstatvfs(target.fileno())
    if disk.f_blocks and left > disk.f_bfree * disk.f_frsize:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    digest = hashlib.sha256()
    while left > 0 and (chunk := source.read(min(CHUNK, left))):
        left -= len(chunk)
        digest.update(chunk)
        target.write(chunk)
    return digest.hexdigest()


def stored_digest(path: Path) -> str:
    """Return the sha256 (hex) of a file of a store, or in its place why it has none: another member of a group can put
    a file of petabytes there that needs no disk. Raises OSError."""
    try:
        with open_regular(path, follow=False) as file:
            if is_oversized(file.fileno()):
                return HOLLOW
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except (NotRegularError, PermissionError):  # another member may have closed it
        return UNREADABLE


def is_oversized(file: int) -> bool:
    """Return whether an open file, which another user may have put there, has more bytes than one that is read:
    `is_hollow`, or more than LARGEST. Blocks that are many times in a file count each time (reflinks of XFS and
    btrfs)."""
    return os.fstat(file).st_size > LARGEST or is_hollow(file)


def is_hollow(file: int) -> bool:
    """Return whether an open file states far more bytes than it has, or has very many holes, as no file does that
    envbuild wrote; it is then at its begin."""
    size = os.fstat(file).st_size
    if size <= most_unpacked(os.fstat(file).st_blocks * 512):
        return False
    data = at = 0  # some file systems count blocks later
    try:
        for _ in range(MOST_PARTS):
            at = os.lseek(file, at, os.SEEK_DATA)
            end = os.lseek(file, at, os.SEEK_HOLE)
            data, at = data + end - at, end
            if size <= most_unpacked(data):
                return False
    except OSError as error:  # ENXIO: the rest is a hole
        return error.errno == errno.ENXIO
    finally:
        os.lseek(file, 0, os.SEEK_SET)
    return True


def reported_digest(path: Path, reporter: Reporter, *, follow: bool = True, name: str = "") -> str:
    """Return `file_digest` of a large file, as a task of the reporter. `name`: what the user calls it. Raises
    VerifyError for a file of holes, NotRegularError."""
    reporter.start("digest", f"sha256 of {name or path.name}")
    try:
        return file_digest(path, follow=follow)
    except TooLargeError:
        what = f"the file {name or path.name} has {HOLLOW}"
        raise VerifyError(what, hint="remove it, then make or pull it again", where=str(path)) from None
    finally:
        reporter.finish("digest")
