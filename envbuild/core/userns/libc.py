"""The system calls that Python's os module does not have, through ctypes.

Numbers and meanings: Linux man-pages unshare(2), mount(2), pivot_root(2), prctl(2), capset(2), and the kernel's uapi
headers. They are the same on x86-64 and aarch64 except where a table has both."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MS_NOATIME, MS_NODIRATIME, MS_RELATIME = 1024, 2048, 1 << 21
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_READ, PR_CAPBSET_DROP = 1, 4, 23, 24
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
CAPABILITY_VERSION_3 = 0x20080522

# What Docker leaves to a container, less CAP_MKNOD, which a user namespace cannot give: root and user builds then may
# do the same. chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw,
# sys_chroot, audit_write, setfcap
KEPT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 29, 31)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_libc.syscall.restype = ctypes.c_long


def _check(result: int, what: str) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), what)


def unshare(flags: int) -> None:
    """New namespaces for this process (CLONE_NEWPID: for its next child). Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str | os.PathLike[str], kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2). Raises OSError whose filename is the target."""
    path = os.fsencode(target)
    data = os.fsencode(options) if options else None
    _check(_libc.mount(os.fsencode(source), path, kind.encode() or None, flags, data), os.fsdecode(path))


def umount(target: str | os.PathLike[str], flags: int = MNT_DETACH) -> None:
    _check(_libc.umount2(os.fsencode(target), flags), os.fsdecode(target))


def sync(path: str | os.PathLike[str]) -> None:
    """Write everything of the file system that holds the folder `path` to its disk (syncfs(2)). Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check(_libc.syncfs(folder), os.fspath(path))
    finally:
        os.close(folder)


def pivot_root(root: str | os.PathLike[str]) -> None:
    """Make `root` (a mount) the root of this mount namespace and detach the old one."""
    os.chdir(root)
    number = PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(38, f"no system call numbers for {platform.machine()}")
    _check(_libc.syscall(ctypes.c_long(number), b".", b"."), "pivot_root")
    umount(".")  # the old root, stacked over the new one (pivot_root(2), NOTES)
    os.chdir("/")


def prctl(option: int, value: int = 0) -> int:
    result: int = _libc.prctl(option, value, 0, 0, 0)
    _check(result, "prctl")
    return result


def set_parent_death_signal(signal: int) -> None:
    """Get `signal` when the thread that made this process ends. Check the parent afterwards: it may have ended
    before."""
    prctl(PR_SET_PDEATHSIG, signal)


def set_host_name(name: str) -> None:
    value = name.encode()
    _check(_libc.sethostname(value, ctypes.c_size_t(len(value))), "sethostname")


def drop_capabilities() -> None:
    """Keep KEPT_CAPABILITIES and nothing else, for this process and all that it starts."""
    kept = sum(1 << number for number in KEPT_CAPABILITIES)
    number = 0
    while True:
        try:
            present = prctl(PR_CAPBSET_READ, number)
        except OSError:  # EINVAL: past the last capability of this kernel
            break
        if present and not kept >> number & 1:
            prctl(PR_CAPBSET_DROP, number)
        number += 1
    head = ctypes.create_string_buffer(struct.pack("=Ii", CAPABILITY_VERSION_3, 0))
    data = ctypes.create_string_buffer(24)
    _check(_libc.capget(head, data), "capget")
    words = struct.unpack("=6I", data.raw[:24])  # effective, permitted, inheritable of capabilities 0-31, then of 32-63
    permitted = words[1] & kept
    ctypes.memmove(data, struct.pack("=6I", permitted, permitted, 0, 0, 0, 0), 24)
    _check(_libc.capset(head, data), "capset")
