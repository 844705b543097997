"""Profiles of the system calls that programs in a sandbox may make: BUILD for the steps of units, RUN for
`envbuild run` and the checks of verify.

Both follow the default profiles of Docker and Podman. They differ where HPC programs need more (memory policies,
process_vm_readv, pidfd_getfd: each is limited to processes that the caller may trace) or a build needs less (sockets).
root of the machine, root of a user namespace and any other user of the sandbox have the same profile.
"""

from __future__ import annotations

import errno
from dataclasses import replace

from envbuild.core.userns import libc
from envbuild.core.userns.seccomp import ArgumentCheck, Case, Condition, Profile

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
