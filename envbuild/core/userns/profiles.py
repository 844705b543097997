"""Profiles of the system calls that programs in a sandbox may make: BUILD for the steps of units, RUN for
`envbuild run` and the checks of verify.

Both follow the default profiles of Docker and Podman. They differ where HPC programs need more (memory policies,
process_vm_readv, pidfd_getfd: each is limited to processes that the caller may trace) or a build needs less (sockets).
root of the machine, root of a user namespace and any other user of the sandbox have the same profile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from envbuild.core.userns import libc
from envbuild.core.userns.seccomp import ArgumentCheck, Case, Condition, Profile
from envbuild.core.userns.system_calls import NUMBERS

KEYS = "add_key request_key keyctl"  # keyrings have no namespace: uid 0 reaches those of the machine's root
MOUNTS = (
    "mount umount2 pivot_root fsopen fsmount fsconfig fspick move_mount open_tree open_tree_attr mount_setattr "
    "open_by_handle_at fanotify_init quotactl quotactl_fd"
)
MACHINE = (
    "acct adjtimex clock_adjtime clock_settime settimeofday init_module finit_module delete_module kexec_load "
    "kexec_file_load reboot swapon swapoff sethostname setdomainname syslog vhangup iopl ioperm"
)
KERNEL = "bpf io_uring_setup io_uring_enter io_uring_register userfaultfd"  # large, and the source of many faults
DEBUGGING = "perf_event_open kcmp process_madvise"  # ptrace is allowed: sanitizers and tests of debuggers use it

# Namespaces: with a user namespace of its own a process has every capability in it, and with it most of the kernel.
# clone3 has its flags in memory, where no filter can read them; the C library takes ENOSYS as a kernel before 5.3 and
# uses clone.
CLONE_NEWTIME = 0x80  # of unshare; for clone these bits are a signal
NAMESPACES = (
    libc.CLONE_NEWNS
    | libc.CLONE_NEWCGROUP
    | libc.CLONE_NEWUTS
    | libc.CLONE_NEWIPC
    | libc.CLONE_NEWUSER
    | libc.CLONE_NEWPID
    | libc.CLONE_NEWNET
)
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # type into a terminal, as its user would
# PER_LINUX32, UNAME26 and ADDR_NO_RANDOMIZE (setarch, gdb); 0xffffffff queries the present one
PERSONALITIES = 0x0008 | 0x20000 | 0x40000

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET = 1, 2, 10, 16, 17
NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT, NETLINK_GENERIC, NETLINK_RDMA = 0, 4, 15, 16, 20


def check_sockets(families: tuple[int, ...], netlink: tuple[int, ...]) -> ArgumentCheck:
    """Return the check of socket(2) that allows families and protocols of netlink. Among the rest are AF_VSOCK, which
    reaches the hypervisor past the network namespace, and NETLINK_AUDIT, which writes into the machine's log.

    The errors are those of a kernel without the family or the protocol: useradd continues without an audit then.
    """
    netlink_only = Condition(0, AF_NETLINK)
    return ArgumentCheck(
        (
            *(Case((Condition(0, family),)) for family in families),
            *(Case((netlink_only, Condition(2, protocol))) for protocol in netlink),
            Case((netlink_only,), errno.EPROTONOSUPPORT),
        ),
        errno.EAFNOSUPPORT,
    )


# Of another process: who gets its signals and which (SIGKILL), leases, notices of folders.
F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY = 8, 10, 15, 1024, 1026

BUILD = Profile(
    refused=frozenset(f"{KEYS} {MOUNTS} {MACHINE} {KERNEL} {DEBUGGING} setns".split()),
    absent=frozenset({"clone3"}),
    checks={
        "clone": ArgumentCheck((Case((Condition(0, 0, NAMESPACES),)),)),
        "unshare": ArgumentCheck((Case((Condition(0, 0, NAMESPACES | CLONE_NEWTIME),)),)),
        "personality": ArgumentCheck(
            (Case((Condition(0, 0, ~PERSONALITIES & 0xFFFFFFFF),)), Case((Condition(0, 0xFFFFFFFF),)))
        ),
        "ioctl": ArgumentCheck(
            (Case((Condition(1, TIOCSTI),), errno.EPERM), Case((Condition(1, TIOCLINUX),), errno.EPERM)), otherwise=0
        ),
        # A lease of an input lets each other build that opens it fail, or wait for 45 s.
        "fcntl": ArgumentCheck((Case((Condition(1, F_SETLEASE),), errno.EPERM),), otherwise=0),
        "socket": check_sockets((AF_UNIX, AF_INET, AF_INET6), (NETLINK_ROUTE,)),
        "socketpair": ArgumentCheck((Case((Condition(0, AF_UNIX),)),), errno.EAFNOSUPPORT),
    },
)
RUN = replace(
    BUILD,
    refused=BUILD.refused - frozenset(DEBUGGING.split()),
    checks={
        **BUILD.checks,
        "socket": check_sockets(
            (AF_UNIX, AF_INET, AF_INET6, AF_PACKET),
            (NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT, NETLINK_GENERIC, NETLINK_RDMA),
        ),
    },
)

# squashfuse and unsquashfs, which read files of strangers: what a program, its loader and its threads need.
PROGRAM = (
    "execve exit exit_group brk mmap munmap mprotect mremap madvise arch_prctl set_tid_address set_robust_list rseq "
    "getrlimit getrandom futex rt_sigaction rt_sigprocmask rt_sigreturn rt_sigtimedwait sigaltstack "
    "restart_syscall sched_yield sched_getaffinity sysinfo uname getpid gettid getppid getuid geteuid getgid getegid "
    "clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time umask getcwd "
    "read readv pread64 preadv write writev pwrite64 close close_range fstat stat lstat newfstatat statx statfs "
    "fstatfs lseek fadvise64 readahead access faccessat faccessat2 readlink readlinkat getdents64 dup dup2 dup3 "
    "pipe pipe2 poll ppoll splice"
)
UNPACKING = (
    "creat mkdir mkdirat mknod mknodat symlink symlinkat link linkat unlink unlinkat rmdir rename renameat renameat2 "
    "chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat utime utimes utimensat futimesat truncate ftruncate "
    "fallocate setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr chdir fchdir "
    "setitimer alarm"
)
CLONE_THREAD = 0x00010000
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | (os.O_TMPFILE & ~os.O_DIRECTORY)


OF_ITSELF = {
    "prlimit64": ArgumentCheck((Case((Condition(0, 0),)),)),
    "fcntl": ArgumentCheck(
        tuple(
            Case((Condition(1, command),), errno.EPERM)
            for command in (F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY)
        ),
        otherwise=0,
    ),
}


def allow_only(calls: str, checks: Mapping[str, ArgumentCheck] = MappingProxyType({})) -> Profile:
    """Return the profile that allows `calls`, threads, and those of `checks` for some arguments."""
    whole = {
        **OF_ITSELF,
        "clone": ArgumentCheck((Case((Condition(0, CLONE_THREAD, CLONE_THREAD | NAMESPACES),)),)),
        **checks,
    }
    known = {name for numbers in NUMBERS.values() for name in numbers}
    absent = frozenset({"clone3", "openat2"})
    return Profile(refused=frozenset(known - set(calls.split()) - absent - whole.keys()), absent=absent, checks=whole)


READ_ONLY = {
    "open": ArgumentCheck((Case((Condition(1, 0, WRITING),)),)),
    "openat": ArgumentCheck((Case((Condition(2, 0, WRITING),)),)),
}
SQUASHFUSE = allow_only(PROGRAM, READ_ONLY)
UNSQUASHFS = allow_only(f"{PROGRAM} {UNPACKING} open openat")
