"""The kernel mounts overlays in user namespaces, as builds and enroot do; without that enroot takes FUSE."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.cpu import is_older, kernel
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_run, passed
from .user_namespaces import try_mount

GROUP = "machine"
FLOOR = "5.11"  # overlayfs in user namespaces; distributions add it to older kernels


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the kernel's release; with an older one, mount an overlay."""
    release = kernel(host)
    if not release:
        yield not_run("/proc/sys/kernel/osrelease cannot be read")
    elif is_older(release, FLOOR) and host.is_real and not try_mount(overlay=True)[1]:
        yield passed(f"kernel {release}: an overlay was mounted in a new user namespace")
    elif is_older(release, FLOOR):
        fix = f"Red Hat 8: release 8.5 or newer; a kernel >= {FLOOR}; enroot: fuse-overlayfs and squashfuse"
        yield failed(f"kernel {release} is older than {FLOOR}, and mounts no overlay for a user", MINOR, fix)
    else:
        yield passed(f"kernel {release}")
