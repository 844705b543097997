"""The system calls on files that Python's os module does not have.

Sources: Linux man-pages openat2(2), fstatfs(2), name_to_handle_at(2), renameat2(2), syncfs(2), sync_file_range(2),
tee(2), and the kernel's uapi headers."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct

from envbuild.core.userns.libc import AT_FDCWD, LIBC, check

AT_EMPTY_PATH, RENAME_NOREPLACE = 0x1000, 1
HANDLE_SIZE = 128  # MAX_HANDLE_SZ
SYNC_FILE_RANGE_WRITE = 2
SPLICE_F_NONBLOCK = 2
OPENAT2 = 437  # on every architecture with the common numbers (Linux 5.6 has the call)
RESOLVE_NO_MAGICLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT = 0x02, 0x08, 0x10
PROC, FUSE = 0x9FA0, 0x65735546  # types of file systems (linux/magic.h)


def openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    """Return a new descriptor of `path`, found from the descriptor of a folder by the rules `resolve` (openat2(2)).

    Raises OSError; ENOSYS where the kernel lacks the call.
    """
    how = struct.pack("=3Q", flags, 0, resolve)
    words = ctypes.c_long(OPENAT2), ctypes.c_int(folder), os.fsencode(path), how, ctypes.c_size_t(len(how))
    result: int = LIBC.syscall(*words)
    check(result, path)
    return result


def file_system(descriptor: int) -> int:
    """Return the number of the type of the file system that has an open file (fstatfs(2))."""
    found = ctypes.create_string_buffer(256)
    check(LIBC.fstatfs(descriptor, found), "fstatfs")
    return struct.unpack_from("=q", found)[0]  # type: ignore[no-any-return]


def file_handle(descriptor: int) -> bytes:
    """Return what names an open file in its file system, and no file that gets its inode later (name_to_handle_at(2)).

    Raises OSError where the file system has none."""
    handle, mount = ctypes.create_string_buffer(struct.pack("=Ii", HANDLE_SIZE, 0), 8 + HANDLE_SIZE), ctypes.c_int()
    check(LIBC.name_to_handle_at(descriptor, b"", handle, ctypes.byref(mount), AT_EMPTY_PATH), "name_to_handle_at")
    size, kind = struct.unpack_from("=Ii", handle.raw)
    return struct.pack("=i", kind) + handle.raw[8 : 8 + size]


def rename_new(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename; never replace an empty folder, in which another process may just make a file (renameat2(2)). A file
    system that cannot do that (NFS) replaces it. Raises OSError."""
    try:
        check(
            LIBC.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), RENAME_NOREPLACE),
            "rename",
        )
    except (AttributeError, OSError) as error:  # AttributeError: a C library without it
        if isinstance(error, OSError) and error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        os.rename(source, target)  # noqa: PTH104


def sync(path: str | os.PathLike[str]) -> None:
    """Write everything of the file system that holds the folder `path` to its disk (syncfs(2)). Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        check(LIBC.syncfs(folder), os.fspath(path))
    finally:
        os.close(folder)


def start_writing(file: int, at: int, length: int) -> None:
    """Let the kernel begin to write a part of an open file to its disk, and do not wait (sync_file_range(2)).

    Nothing happens where a file system or a C library cannot."""
    with contextlib.suppress(AttributeError):
        LIBC.sync_file_range(file, ctypes.c_int64(at), ctypes.c_int64(length), SYNC_FILE_RANGE_WRITE)


def tee(source: int, target: int, count: int) -> int:
    """Copy up to `count` bytes from one pipe into another without a wait, and leave them in the first (tee(2)). Return
    how many; 0: no process has the first open for writing any more. Raises OSError."""
    copied = int(LIBC.tee(source, target, ctypes.c_size_t(count), SPLICE_F_NONBLOCK))
    check(copied, "tee")
    return copied
