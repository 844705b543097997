"""Namespaces of a process: what it shares with no other, and its end with the process that started it."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys

from envbuild.core.userns import libc

HOST_NAME = "envbuild"
BIND = "--bind"  # the step of a SetupError in a request of the user, not of this machine


class SetupError(Exception):
    """A step of setting up failed: `step` (a word that `envbuild.core.userns.diagnose.fix_for` knows) and why. `code`
    is the errno of the system call that failed, 0 where none did."""

    def __init__(self, step: str, reason: str, code: int = 0) -> None:
        super().__init__(f"{step}: {reason}")
        self.step, self.reason, self.code = step, reason, code

    @classmethod
    def of(cls, step: str, error: OSError, what: str = "") -> SetupError:
        """Return the error for a system call that failed on `what`."""
        why = f"{error.strerror} (errno {error.errno})"
        return cls(step, f"{what}: {why}" if what else why, error.errno or 0)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, and end at once when it already has."""
    libc.set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def isolate(network: bool) -> None:
    """Enter new ipc, uts, pid and (unless `network`) net namespaces; the next child is the pid namespace's init.

    Raises SetupError.
    """
    flags = libc.CLONE_NEWIPC | libc.CLONE_NEWUTS | libc.CLONE_NEWPID | (0 if network else libc.CLONE_NEWNET)
    try:
        libc.unshare(flags)
        libc.set_host_name(HOST_NAME)
    except OSError as error:
        raise SetupError.of("unshare", error, "namespaces") from error
    if not network:
        loopback_up()


def hide_cgroup() -> bool:
    """Enter a new cgroup namespace: the caller's cgroup is its root, and those above it have no name. Return whether
    the kernel could (it has no cgroups, or the machine's limit of namespaces is reached)."""
    try:
        libc.unshare(libc.CLONE_NEWCGROUP)
    except OSError:
        return False
    return True


def hide_keyring() -> bool:
    """Leave the caller's session keyring for an empty one. Return whether the caller's is out of reach."""
    try:
        libc.join_new_session_keyring()
    except OSError as error:
        return error.errno == errno.ENOSYS  # this kernel has no keyrings
    return True


def private_mounts() -> None:
    """Enter a mount namespace whose changes no other process sees. Raises SetupError."""
    try:
        libc.unshare(libc.CLONE_NEWNS)
        libc.mount("none", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    except OSError as error:
        raise SetupError.of("unshare", error, "a mount namespace") from error


def loopback_up() -> None:
    """Activate ``lo`` (netdevice(7): SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP). Raises SetupError."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            request = struct.pack("16sh22x", b"lo", 0)
            flags = struct.unpack("16sh22x", fcntl.ioctl(sock, 0x8913, request))[1]
            fcntl.ioctl(sock, 0x8914, struct.pack("16sh22x", b"lo", flags | 1))
    except OSError as error:
        raise SetupError.of("loopback", error) from error


def fork_keeper() -> int:
    """Fork a process that dies with this one; returns as os.fork."""
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        die_with(parent)
    return child


def fork_init() -> int:
    """Fork the init of the new pid namespace, which dies with this process. Returns 0 in it, else its pid (as os.fork).

    Its parent is outside of its pid namespace, so getppid cannot show whether it runs: a pipe does.
    """
    alive_read, alive_write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.close(alive_read)  # alive_write remains open until this process ends
        return child
    os.close(alive_write)
    libc.set_parent_death_signal(signal.SIGKILL)
    if select.select([alive_read], [], [], 0)[0]:
        os._exit(1)
    os.close(alive_read)
    return 0
