"""Loop devices (loop(4)), by which the kernel mounts a file.

``mount -o loop`` takes the device that another mount of the file has, and with it the superblock and the pages that the
kernel read then: of a file that was written in place since, the older content. Here each file gets a device of its own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator

CONTROL = "/dev/loop-control"
# linux/loop.h
SET_FD, CLEAR_FD, SET_STATUS, CONFIGURE, GET_FREE = 0x4C00, 0x4C01, 0x4C04, 0x4C0A, 0x4C82
READ_ONLY, ENDS_WITH_MOUNT = 1, 4  # LO_FLAGS_READ_ONLY, LO_FLAGS_AUTOCLEAR
INFO = "5Q4I64s64s32s2Q"  # struct loop_info64
CONFIG = f"=2I{INFO}64x"  # struct loop_config
MOST_TRIES = 32  # others take devices at the same time


@contextlib.contextmanager
def loop_device(number: int) -> Iterator[str]:
    """Yield the path of a read-only device of an open file; it ends with the last mount of it, or with the context.

    Raises OSError where there are no such devices, or this process may not use them.
    """
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        path, device = _take(control, number)
    finally:
        os.close(control)
    try:
        yield path
    finally:
        os.close(device)


def _take(control: int, number: int) -> tuple[str, int]:
    for left in reversed(range(MOST_TRIES)):
        path = f"/dev/loop{fcntl.ioctl(control, GET_FREE)}"
        device = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not stat.S_ISBLK(os.fstat(device).st_mode):
                raise OSError(errno.ENOTBLK, os.strerror(errno.ENOTBLK), path)
            _configure(device, number)
            return path, device
        except OSError as error:
            os.close(device)
            if error.errno != errno.EBUSY or not left:
                raise
    raise AssertionError("the last try returns or raises")


def _configure(device: int, number: int) -> None:
    info = (0, 0, 0, 0, 0, 0, 0, 0, READ_ONLY | ENDS_WITH_MOUNT, b"", b"", b"", 0, 0)
    try:
        fcntl.ioctl(device, CONFIGURE, struct.pack(CONFIG, number, 0, *info))
        return
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTTY):  # before Linux 5.8
            raise
    fcntl.ioctl(device, SET_FD, number)
    try:
        fcntl.ioctl(device, SET_STATUS, struct.pack(f"={INFO}", *info))
    except OSError:
        fcntl.ioctl(device, CLEAR_FD)
        raise
