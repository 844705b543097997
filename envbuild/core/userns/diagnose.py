"""Hints for a failed step of setting up namespaces and mounts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from envbuild.core.userns import namespaces

LOCAL_DISK = (
    "set ENVBUILD_STORE to a folder on a local disk (ext4, xfs, btrfs) or tmpfs: "
    "overlayfs cannot write on NFS, Lustre, GPFS or another overlay"
)
UNMASK = "the machine hides parts of /proc: docker run --privileged, or --security-opt systempaths=unconfined"
UNSHARE = "or: buildah unshare envbuild make NAME"


def fix_for(step: str, code: int = 0) -> str:
    """Return what to type when `step` failed with the errno `code` (0: no system call did)."""
    user = namespaces.user_name(os.geteuid()) or str(os.geteuid())
    if step == "newuidmap":
        return f"sudo apt-get install uidmap, {UNSHARE}"
    if step == "subordinate ids":
        return f"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
    if step in ("unshare", "map ids", "mount proc", "bind"):
        return _namespace_fix(step, code)
    if step in ("mount overlay", "whiteout", "opaque folder", "chown", "setcap"):
        return LOCAL_DISK
    if step == "pivot_root":
        return f"--engine buildah, {UNSHARE}"
    if step == "mount squashfs":
        return "sudo apt-get install squashfs-tools squashfuse"
    if step == "mount tmpfs":
        return _namespace_fix(step, code)
    return f"--engine buildah, {UNSHARE}"


def _namespace_fix(step: str, code: int) -> str:
    limit = _number("/proc/sys/user/max_user_namespaces")
    if limit == 0 or code == errno.ENOSPC:
        return f"sudo sysctl -w user.max_user_namespaces=65536, {UNSHARE}"
    if _number("/proc/sys/kernel/unprivileged_userns_clone") == 0 and os.geteuid():
        return f"sudo sysctl -w kernel.unprivileged_userns_clone=1, {UNSHARE}"
    if _number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1 and os.geteuid():
        return f"sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, {UNSHARE}"
    if step in ("mount proc", "bind"):
        return UNMASK
    if os.geteuid() == 0:
        return "root without CAP_SYS_ADMIN, as in a container: docker run --privileged, or run envbuild on the host"
    return f"use root, {UNSHARE}"


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
