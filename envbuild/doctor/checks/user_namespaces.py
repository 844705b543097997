"""A user may make a user namespace and mount in it: enroot, pyxis and builds do.

It is tried, in a process of its own: AppArmor of Ubuntu permits the namespace and then refuses the mount, which no
setting shows. Root tries it as a user: a health check has rights that the user of a job does not have. The user has no
other process, which could trace that one, or end it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

from ..facts.place import CONTAINER, JOB, find_place
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, Need, Result, failed, not_applicable, not_run, passed

GROUP = "containers"
NEWNS, NEWUSER = 0x00020000, 0x10000000
UNUSED = range(4_200_000_000, 4_290_000_000)  # no directory, container or service has them (systemd, UIDS-GIDS.md)
SET_DUMPABLE = 4  # of <sys/prctl.h>: after a change of the user, /proc/self would belong to root
STEPS = ("make a user namespace", "map its user", "mount in it", "mount an overlay in it")
APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
PROFILES = ("/etc/apparmor.d/enroot", "/etc/apparmor.d/usr.bin.enroot-nsenter")
ROOTLESS = ("apptainer", "singularity", "podman", "ch-run")  # they start containers in one, or by a setuid program


def lasting(setting: str) -> str:
    """Return the commands that set a value of the kernel now and at each boot."""
    return f"echo {setting} > /etc/sysctl.d/60-user-namespaces.conf; sysctl --system"


SETTINGS = (  # a file of /proc/sys, the value that forbids it, the command that permits it
    ("user/max_user_namespaces", "0", lasting("user.max_user_namespaces=15000")),
    ("kernel/unprivileged_userns_clone", "0", lasting("kernel.unprivileged_userns_clone=1")),
    (
        APPARMOR, "1",
        "an AppArmor profile with userns for enroot-nsenter in /etc/apparmor.d/enroot, as enroot's package has it",
    ),
)  # fmt: skip


def check(host: Host, need: Need) -> Iterator[Result]:
    """Mount a tmpfs in a new user namespace."""
    if not host.is_real:
        yield not_run("only the running system states it")
        return
    step, number = try_mount()
    place = find_place(host)[0]
    if not number:
        yield passed("a tmpfs was mounted in a new user namespace")
    elif place == JOB:
        yield not_applicable("inside the container of a job nothing needs another one")
    else:
        if host.text(f"/proc/sys/{APPARMOR}") == "1" and place != CONTAINER and (result := profile_result(host)):
            yield result
            return
        named = [fix for name, value, fix in SETTINGS if host.text(f"/proc/sys/{name}") == value]
        container = "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
        fix = (
            named[0] if named else container if place == CONTAINER else "sysctl -a | grep -e userns -e user_namespaces"
        )
        setting = host.text("/proc/sys/user/max_user_namespaces")
        limit = f" (user.max_user_namespaces={setting})" if number == errno.ENOSPC else ""
        reason = "the kernel permits no more" + limit if number == errno.ENOSPC else os.strerror(number)
        yield judge(host, f"cannot {STEPS[step]}: {reason}", fix, mild=place == CONTAINER and not named)


def judge(host: Host, detail: str, fix: str, *, mild: bool) -> Result:
    """Judge by what needs user namespaces here: jobs of enroot surely do; without a program for containers, a site may
    forbid them, as the hardening of DISA's STIG does."""
    if host.programs.find("enroot"):
        return failed(detail, MINOR if mild else ADMINISTRATOR, fix)
    if any(host.programs.find(name) for name in ROOTLESS):
        return failed(detail, MINOR if mild else ADMINISTRATOR, fix, drains=False)
    return failed(detail, MINOR, f"none, if no program starts containers without root; else {fix}")


def profile_result(host: Host) -> Result | None:
    """Return the result where AppArmor permits it to programs by their profile, as Ubuntu does since 23.10: that
    Python has none states nothing about enroot (NVIDIA/enroot#201)."""
    if any(host.has(path) for path in PROFILES):
        return not_applicable("AppArmor permits it to programs with a profile, as enroot has, and not to Python")
    if not host.programs.find("enroot"):
        fix = "none, if no program starts containers without root; else an AppArmor profile with userns for it"
        return failed("AppArmor permits it to programs with a profile alone", MINOR, fix)
    return None


def try_mount(*, overlay: bool = False) -> tuple[int, int]:
    """Return the step that failed and its error number; 0: none. `overlay`: mount an overlay in the tmpfs, too."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        step, number = 0, errno.EIO
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            become_user(libc)
            uid, gid = os.getuid(), os.getgid()
            if libc.unshare(NEWUSER | NEWNS):
                number = ctypes.get_errno()
            else:
                step = 1
                for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
                    map_file = os.open(f"/proc/self/{name}", os.O_WRONLY)  # the user may not read Python's own modules
                    os.write(map_file, text.encode())
                    os.close(map_file)
                step = 2
                done = libc.mount(b"doctor", b"/tmp", b"tmpfs", 0, b"size=4k")
                number = ctypes.get_errno() if done else 0
                if overlay and not number:
                    step = 3
                    for name in ("lower", "upper", "work"):
                        os.mkdir(f"/tmp/{name}")  # noqa: PTH102
                    options = b"lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work"
                    done = libc.mount(b"doctor", b"/tmp/lower", b"overlay", 0, options)
                    number = ctypes.get_errno() if done else 0
        except OSError as error:
            number = error.errno or errno.EIO
        finally:
            os.write(write, bytes((step, min(number, 255))))
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        answer = file.read(2)
    os.waitpid(child, 0)
    return (answer[0], answer[1]) if len(answer) == 2 else (0, errno.EIO)


def become_user(libc: ctypes.CDLL) -> None:
    """Give up the rights of root in this process, where it has them: root of a user namespace may have one id alone."""
    if os.getuid() == 0:
        with contextlib.suppress(OSError):
            user = unused_user(Path("/proc/self/uid_map").read_text())
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            libc.prctl(SET_DUMPABLE, 1, 0, 0, 0)


def unused_user(uid_map: str) -> int:
    """Return the number of a user who has no process; `uid_map`: which numbers there are (user_namespaces(7))."""
    first, _, count = max(
        (tuple(map(int, line.split())) for line in uid_map.splitlines()), key=lambda row: row[0] + row[2]
    )
    last = min(first + count, UNUSED.stop)
    return random.randrange(max(last - len(UNUSED), first + count // 2), last)
