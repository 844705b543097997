"""Hints for a failed step of setting up namespaces and mounts."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shutil
from pathlib import Path

from envbuild.core.errors import FREE_SOME, FULL_DISK
from envbuild.core.install_hint import install_hint
from envbuild.core.text import human_list
from envbuild.core.userns import id_maps

LOCAL_DISK = (
    "set ENVBUILD_STORE to a folder on a local disk (ext4, xfs, btrfs) or tmpfs: "
    "overlayfs cannot write on NFS, Lustre, GPFS or another overlay"
)
UNMASK = "the machine hides parts of /proc: docker run --privileged, or --security-opt systempaths=unconfined"
# Capabilities that a box needs of root (linux/capability.h): containers have some of them.
NEEDED = {"CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_SETFCAP": 31}
COUNT = 65536  # ids of a user (SUB_UID_COUNT of login.defs)
# Not SUB_UID_MIN (100000): users of a directory that does not list them (sssd.conf(5), "enumerate") can have numbers
# from there on, those of sssd-ad(5) and FreeIPA to 2000200000; from 2147483648 on FreeIPA has subordinate ids.
LOWEST = 2_001_000_000
UNLESS = "# if no user or group of yours has these numbers"


def fix_for(step: str, code: int = 0) -> str:
    """Return what to type when `step` failed with the errno `code` (0: no system call did); "" if nothing is known.

    No engine is named: whether another one works is known where engines are chosen.
    """
    if step == "newuidmap":
        return install_hint("newuidmap")
    if step == "subordinate ids":
        user = id_maps.user_name(os.geteuid()) or str(os.geteuid())
        ids = free_range()
        return f"sudo usermod --add-subuids {ids} --add-subgids {ids} {user}  {UNLESS}"
    if code == errno.ENOSPC and step in ("mount proc", "bind", "mount tmpfs"):
        return "sudo sysctl -w fs.mount-max=100000"  # mount(2); the default
    if step in ("unshare", "map ids", "loopback", "mount proc", "bind", "mount tmpfs"):
        return _namespace_fix(step, code)
    if code in FULL_DISK:
        return FREE_SOME
    if step in ("mount overlay", "whiteout", "opaque folder", "chown", "setcap"):
        return LOCAL_DISK
    if step == "mount squashfs":
        missing = [program for program in ("unsquashfs", "squashfuse") if not shutil.which(program)]
        return install_hint(*missing) if missing else ""
    return ""


def free_range() -> str:
    """Return a range of ids, as usermod takes it, that neither a user, as far as users are listed, nor a line of
    subuid(5) and subgid(5) has. The user of a range owns all files of the users with these numbers."""
    taken = [(user.pw_uid, 1) for user in pwd.getpwall()] + [(group.gr_gid, 1) for group in grp.getgrall()]
    for path in id_maps.SUBORDINATE:
        taken += [(first, count) for _, first, count in id_maps.read_ranges(path)]
    first = LOWEST
    for start, count in sorted(taken):
        if start < first + COUNT and first < start + count:
            first = start + count
    return f"{first}-{first + COUNT - 1}"


def _namespace_fix(step: str, code: int) -> str:
    limit = _number("/proc/sys/user/max_user_namespaces")
    if limit == 0 or code == errno.ENOSPC:
        return "sudo sysctl -w user.max_user_namespaces=65536"
    if _number("/proc/sys/kernel/unprivileged_userns_clone") == 0 and os.geteuid():
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if _number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1 and os.geteuid():
        # a profile of AppArmor allows it to some programs
        inside = ", or: buildah unshare envbuild make NAME" if shutil.which("buildah") else ""
        return f"sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0{inside}"
    if step in ("mount proc", "bind"):
        return UNMASK
    if os.geteuid() == 0:
        missing = missing_capabilities() or ["CAP_SYS_ADMIN"]  # a filter of system calls may act as if
        without = human_list(missing, len(NEEDED))
        return f"root without {without}, as in a container: docker run --privileged, or run envbuild on the host"
    return "use root, or a machine that allows user namespaces"


def missing_capabilities() -> list[str]:
    """Return those of `NEEDED` that this process lacks (proc_pid_status(5), CapEff)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return []
    have = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), -1)
    return [name for name, number in NEEDED.items() if not have >> number & 1]


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
