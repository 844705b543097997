"""Copy living bytes into an image: in the kernel where it can, sharing blocks where the file system can."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence

from envbuild.squashfs.blocks import write_all
from envbuild.squashfs.extents import Range
from envbuild.squashfs.packfile import PAGE, Pack, damaged
from envbuild.squashfs.same import sources

NO_KERNEL_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
PIECE = 1 << 20


def copy(packs: Sequence[Pack], ranges: Iterable[Range], out: int) -> None:
    """Copy `ranges` of packs' files into the descriptor `out`. Raises EnvbuildError for a pack that is cut short."""
    with sources(packs) as files:
        for number, at, length, to in ranges:
            if not copy_range(files.open(number), packs[number].base + at, out, to, length):
                raise damaged(packs[number])


def copy_range(source: int, at: int, out: int, to: int, length: int) -> bool:
    """Copy `length` bytes between descriptors; False when the source ends before.

    Blocks are shared in whole pages only, and not by a call that begins or ends within one: so the pages go by
    themselves.
    """
    first = -at % PAGE
    pages = (length - first) // PAGE * PAGE
    if at % PAGE != to % PAGE or pages <= 0:
        return copy_bytes(source, at, out, to, length)
    rest = first + pages
    return (
        copy_bytes(source, at, out, to, first)
        and copy_bytes(source, at + first, out, to + first, pages)
        and copy_bytes(source, at + rest, out, to + rest, length - rest)
    )


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


def move_down(file: int, at: int, to: int, length: int) -> bool:
    """Move bytes of a file to an earlier position; False when the file ends before. Source and target may overlap."""
    while length and at != to:
        chunk = os.pread(file, min(length, PIECE), at)
        if not chunk:
            return False
        write_all(file, [chunk], to)
        at, to, length = at + len(chunk), to + len(chunk), length - len(chunk)
    return True
