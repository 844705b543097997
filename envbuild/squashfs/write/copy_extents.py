"""Copies of live bytes into an image, by the cheapest way that its file system has.

1. Share the blocks (FICLONERANGE, ioctl_ficlonerange(2)): XFS and btrfs, when the pack is stored there, too.
2. Write from the pack's pages in memory past the page cache (O_DIRECT, open(2)): local disks. No byte is copied by a
   processor, and the image pushes nothing else out of memory.
3. copy_file_range(2): network file systems copy on their server, others in the kernel.
4. Read and write.

1 and 2 take whole pages at places that are equal modulo a page, which is how long pieces are placed
(`envbuild.squashfs.write.extents`); what is before and behind those pages goes by 3.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from envbuild.core.errors import EnvbuildError
from envbuild.core.file_status import on_disk
from envbuild.core.regular_file import open_regular
from envbuild.squashfs.pack.append_file import open_direct, write_all
from envbuild.squashfs.pack.file import PAGE, Pack, damaged_pack
from envbuild.squashfs.write.dedup import open_packs
from envbuild.squashfs.write.extents import Range

NO_KERNEL_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
PIECE = 1 << 20
CLONE = 0x4020940D  # FICLONERANGE of linux/fs.h, with:
CLONE_RANGE = struct.Struct("=qQQQ")  # source descriptor, position, length, position in the target
DIRECT_LEAST = 1 << 18  # each such write waits for the disk: shorter pieces go by the page cache
DIRECT_MOST = 1 << 22  # of one: what is mapped at a time, and counts as this process's memory; 16 MiB is not faster
AHEAD = 1 << 24  # bytes of the pack that are read from its disk in advance


def copy_ranges(packs: Sequence[Pack], ranges: Iterable[Range], out: int) -> None:
    """Copy `ranges` of packs' files into the open file `out`, which should be as long already: then no write has to
    change its size. Raises EnvbuildError for a truncated pack.
    """
    with open_packs(packs) as files, PageCopier(out, direct=True) as pages:
        for number, at, length, to in ranges:
            if not copy_range(files.open(number), packs[number].base + at, out, to, length, pages):
                raise damaged_pack(packs[number])


def copy_file(path: Path, out: int) -> None:
    """Copy all of a regular file into the open, empty file `out`, and wait until it is on the disk.

    Raises EnvbuildError when another process truncates it meanwhile, OSError for a link."""
    with open_regular(path, follow=False) as file, PageCopier(out, direct=True) as pages:
        if not copy_range(file.fileno(), 0, out, 0, os.fstat(file.fileno()).st_size, pages):
            raise EnvbuildError("the file became shorter while it was copied", where=str(path))
    os.fsync(out)


def copy_data(source: int, out: int) -> None:
    """Copy the open regular file `source` into the open, empty file `out`; holes remain holes (lseek(2), SEEK_DATA).

    Raises EnvbuildError when another process truncates it meanwhile, OSError."""
    size, at = os.fstat(source).st_size, 0
    os.ftruncate(out, size)
    with PageCopier(out, direct=True) as pages:
        while at < size:
            try:
                start = os.lseek(source, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # no data behind this position
                    raise
                break
            at = min(os.lseek(source, start, os.SEEK_HOLE), size)
            if not copy_range(source, start, out, start, at - start, pages):
                raise EnvbuildError("the file became shorter while it was copied")
    os.fsync(out)


def can_share(source: int, out: int, at: int) -> bool:
    """Return whether the file `out` can share blocks with `source`. It is tried with a page behind position `at`, where
    nothing is written yet; a source that is shorter is never shared."""
    try:
        fcntl.ioctl(out, CLONE, CLONE_RANGE.pack(source, 0, PAGE, at + -at % PAGE))
    except OSError:
        return False
    return True


def copy_range(source: int, at: int, out: int, to: int, length: int, pages: PageCopier) -> bool:
    """Copy `length` bytes between descriptors; False when the source ends before."""
    first = -at % PAGE
    whole = (length - first) // PAGE * PAGE
    if at % PAGE != to % PAGE or whole <= 0:
        return copy_bytes(source, at, out, to, length)
    done = first + pages.copy(source, at + first, to + first, whole)
    return copy_bytes(source, at, out, to, first) and copy_bytes(source, at + done, out, to + done, length - done)


class PageCopier:
    """A copier of whole pages into the open file `out`: shared, or (with `direct`) written past the page cache."""

    def __init__(self, out: int, *, direct: bool) -> None:
        self.out, self.sharing, self.direct = out, True, open_direct(out) if direct else -1

    def copy(self, source: int, at: int, to: int, length: int) -> int:
        """Copy from the beginning of `length` bytes what can be; returns how many. All three are whole pages."""
        if self.sharing:
            try:
                fcntl.ioctl(self.out, CLONE, CLONE_RANGE.pack(source, at, length, to))
                return length
            except OSError:
                self.sharing = False  # another file system, or one that cannot
        if self.direct < 0 or length < DIRECT_LEAST or not on_disk(source):
            return 0
        done = 0
        os.posix_fadvise(source, at, AHEAD, os.POSIX_FADV_WILLNEED)
        while done < length:
            some = min(length - done, DIRECT_MOST)
            written = self._write(source, at + done, to + done, some)
            done += written
            if written != some:
                break  # the copy of the rest raises the error
        return done - done % PAGE

    def _write(self, source: int, at: int, to: int, length: int) -> int:
        """Write a part of `source`; return the bytes that were written."""
        before = at % mmap.ALLOCATIONGRANULARITY
        try:
            os.posix_fadvise(source, at + AHEAD, length, os.POSIX_FADV_WILLNEED)  # the next ones meanwhile
            with (
                mmap.mmap(source, before + length, prot=mmap.PROT_READ, offset=at - before) as mapped,
                memoryview(mapped) as view,
                view[before:] as part,
            ):
                return os.pwrite(self.direct, part, to)
        except (OSError, ValueError):  # ValueError: the source ends before
            return 0

    def __enter__(self) -> PageCopier:
        return self

    def __exit__(self, *_: object) -> None:
        if self.direct >= 0:
            os.close(self.direct)


def copy_bytes(source: int, at: int, out: int, to: int, length: int) -> bool:
    """Copy with as many calls as it takes; False when the source ends before."""
    in_kernel = True
    while length:
        if in_kernel:
            try:
                done = os.copy_file_range(source, out, length, at, to)
            except OSError as error:
                if error.errno not in NO_KERNEL_COPY:
                    raise
                in_kernel = False  # other file system, or one that cannot
                continue
            if not done and os.fstat(source).st_size >= at + length:
                in_kernel = False  # some kernels answer 0 for file systems without the call
                continue
        else:
            chunk = os.pread(source, min(length, PIECE), at)
            write_all(out, [chunk], to)
            done = len(chunk)
        if not done:
            return False
        at, to, length = at + done, to + done, length - done
    return True
