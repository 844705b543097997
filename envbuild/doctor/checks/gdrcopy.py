"""GDRCopy is loaded: optional, and faster for small messages of UCX."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import driver_version
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_run, passed

GROUP = "GPU"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Search the module and its device file."""
    version = host.text("/sys/module/gdrdrv/version")
    if not driver_version(host):
        yield not_run("the NVIDIA driver is not loaded")
    elif not version:
        yield not_run("gdrdrv is not loaded; it is optional", "modprobe gdrdrv")
    elif not host.has("/dev/gdrdrv"):
        yield failed(
            f"gdrdrv {version} is loaded, and /dev/gdrdrv is missing", MINOR, "mount it: --container-mounts=/dev/gdrdrv"
        )
    else:
        yield passed(f"gdrdrv {version}")
