"""A file system of another user (fuse(4)), which root mounts for the test: its root states that it is the caller's.

As a program: mount it at FOLDER, and print how `find_intrusion` finds it. With `unmount` its first answer about a file
is sent when it is not mounted any more; with `silent` it answers nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import sys
import threading

from envbuild.core.ownership import find_intrusion, own_users
from envbuild.core.userns import libc

GETATTR, STATFS, INIT, FORGET = 3, 17, 26, 2  # linux/fuse.h
USER = 54_321  # who mounted it
HEAD = struct.Struct("=IIQQIIII")  # length, operation, number of the request, …


def serve(device: int, folder: str, way: str) -> None:
    """Answer until the file system has no user any more."""
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError:
            return
        _, operation, number, *_ = HEAD.unpack_from(request)
        answer, error = b"", -errno.ENOSYS
        if operation == INIT:
            answer, error = struct.pack("=4I48x", 7, 31, 1 << 16, 0), 0
        if operation in (GETATTR, STATFS) and way == "unmount":
            with contextlib.suppress(OSError):  # it is not mounted any more
                libc.umount(folder)
        if operation == GETATTR and way != "silent":
            mode = stat.S_IFDIR | 0o700
            answer = struct.pack("=QII6Q3I7I", 0, 0, 0, 1, *[0] * 5, *[0] * 3, mode, 2, os.geteuid(), 0, 0, 4096, 0)
            error = 0
        elif operation == STATFS:
            error = -errno.EIO
        if operation != FORGET:
            os.write(device, struct.pack("=IiQ", 16 + len(answer), error, number) + answer)


def main(folder: str, way: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={USER},group_id={USER},allow_other"
    libc.mount("evil", folder, "fuse", libc.MS_NOSUID | libc.MS_NODEV, options)
    threading.Thread(target=serve, args=(device, folder, way), daemon=True).start()
    print(getattr(find_intrusion(folder, own_users()), "reason", None))


if __name__ == "__main__":
    main(*sys.argv[1:])
