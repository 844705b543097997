"""The system calls that Python's os module does not have, through ctypes.

Numbers and meanings: Linux man-pages unshare(2), mount(2), pivot_root(2), prctl(2), capset(2), and the kernel's uapi
headers. They are the same on x86-64 and aarch64; the numbers of the calls are in `system_calls`."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct

from envbuild.core.userns.system_calls import NUMBERS

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MS_NOATIME, MS_NODIRATIME, MS_RELATIME = 1024, 2048, 1 << 21
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 23, 24, 38
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4  # the filter does not protect against Spectre: no slow calls for it
KEYCTL_JOIN_SESSION_KEYRING = 1
PTRACE_DETACH, PTRACE_GETSIGINFO = 17, 0x4202
SI_USER = 0
CAPABILITY_VERSION_3 = 0x20080522

# What Docker leaves to a container, less CAP_MKNOD, which a user namespace cannot give: root and user builds then may
# do the same. chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw,
# sys_chroot, audit_write, setfcap
KEPT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 29, 31)
CAP_NET_RAW = 13

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
LIBC.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
LIBC.syscall.restype = ctypes.c_long


def check(result: int, what: str) -> None:
    """Raise OSError for the negative result of a call."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), what)


def system_call(name: str, *arguments: object) -> int:
    """Make a system call that the C library has no function for, and return its result. Raises OSError."""
    number = NUMBERS.get(platform.machine(), {}).get(name)
    if number is None:
        raise OSError(errno.ENOSYS, f"no system call numbers for {platform.machine()}")
    result = int(LIBC.syscall(ctypes.c_long(number), *arguments))
    check(result, name)
    return result


def unshare(flags: int) -> None:
    """New namespaces for this process (CLONE_NEWPID: for its next child). Raises OSError."""
    check(LIBC.unshare(flags), "unshare")


def mount(source: str, target: str | os.PathLike[str], kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2). Raises OSError whose filename is the target."""
    path = os.fsencode(target)
    data = os.fsencode(options) if options else None
    check(LIBC.mount(os.fsencode(source), path, kind.encode() or None, flags, data), os.fsdecode(path))


def set_read_only(path: str | os.PathLike[str], read_only: bool, *, recursive: bool = False) -> None:
    """Make a mount read-only or writable, `recursive`: with all mounts below it (mount_setattr(2), Linux 5.12). Raises
    OSError."""
    change = struct.pack("=4Q", int(read_only), int(not read_only), 0, 0)
    flags = ctypes.c_uint(AT_RECURSIVE if recursive else 0)
    words = ctypes.c_int(AT_FDCWD), os.fsencode(path), flags, change, ctypes.c_size_t(len(change))
    system_call("mount_setattr", *words)


def detach(process: int, number: int) -> None:
    """Let a stopped process that this one traces continue without that, with the signal that it stopped at, unless
    that is the SIGTRAP of its execve(2), which only traced processes get (ptrace(2)).

    Raises OSError."""
    if number == signal.SIGTRAP:
        info = (ctypes.c_int * 32)()  # siginfo_t, 128 bytes: number, error, code; of a breakpoint it has another code
        check(LIBC.ptrace(ctypes.c_long(PTRACE_GETSIGINFO), process, None, ctypes.byref(info)), "ptrace")
        number = 0 if info[2] == SI_USER else number
    check(LIBC.ptrace(ctypes.c_long(PTRACE_DETACH), process, None, ctypes.c_long(number)), "ptrace")


def umount(target: str | os.PathLike[str], flags: int = MNT_DETACH) -> None:
    check(LIBC.umount2(os.fsencode(target), flags), os.fsdecode(target))


def pivot_root(root: str | os.PathLike[str]) -> None:
    """Make `root` (a mount) the root of this mount namespace and detach the old one."""
    os.chdir(root)
    system_call("pivot_root", b".", b".")
    umount(".")  # the old root, stacked over the new one (pivot_root(2), NOTES)
    os.chdir("/")


def prctl(option: int, value: int = 0) -> int:
    result: int = LIBC.prctl(option, value, 0, 0, 0)
    check(result, "prctl")
    return result


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def set_filter(program: bytes) -> None:
    """Filter the system calls of this process and all that it starts (`envbuild.core.userns.seccomp`). Raises OSError.

    Call it with CAP_SYS_ADMIN: otherwise it would need no_new_privs, which takes the privileges of sudo and su.
    """
    value = _FilterProgram(len(program) // 8, program)
    _seccomp(ctypes.byref(value))


def has_filters() -> bool:
    """Return whether this kernel has filters of system calls: it then reads the program, here at an address without
    one."""
    try:
        _seccomp(None)
    except OSError as error:
        return error.errno == errno.EFAULT
    return True


def _seccomp(program: object) -> None:
    flags = ctypes.c_ulong(SECCOMP_FILTER_FLAG_SPEC_ALLOW)
    system_call("seccomp", ctypes.c_ulong(SECCOMP_SET_MODE_FILTER), flags, program)


def join_new_session_keyring() -> None:
    """Have an empty session keyring in place of the caller's (keyctl(2)). Raises OSError."""
    system_call("keyctl", ctypes.c_ulong(KEYCTL_JOIN_SESSION_KEYRING), None)


def set_parent_death_signal(signal: int) -> None:
    """Get `signal` when the thread that made this process ends. Check the parent afterwards: it may have ended
    before."""
    prctl(PR_SET_PDEATHSIG, signal)


def set_host_name(name: str) -> None:
    value = name.encode()
    check(LIBC.sethostname(value, ctypes.c_size_t(len(value))), "sethostname")


def drop_capabilities(*also: int) -> None:
    """Keep KEPT_CAPABILITIES without `also`, and nothing else, for this process and all that it starts."""
    kept = sum(1 << number for number in KEPT_CAPABILITIES if number not in also)
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
    check(LIBC.capget(head, data), "capget")
    words = struct.unpack("=6I", data.raw[:24])  # effective, permitted, inheritable of capabilities 0-31, then of 32-63
    permitted = words[1] & kept
    ctypes.memmove(data, struct.pack("=6I", permitted, permitted, 0, 0, 0, 0), 24)
    check(LIBC.capset(head, data), "capset")
