"""GDRCopy is loaded: optional, and faster for small messages of UCX."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import driver_version
from ..facts.place import device_hint, is_container
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_applicable, not_run, passed

GROUP = "GPU"
# as GDRCopy's insmod.sh does
MAKE_FILE = "mknod -m 666 /dev/gdrdrv c $(awk '/gdrdrv/ {print $1}' /proc/devices) 0"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Search the module and its device file."""
    version = host.text("/sys/module/gdrdrv/version")
    if not driver_version(host):
        yield not_run("the NVIDIA driver is not loaded")
    elif not version:
        yield not_applicable("gdrdrv is not loaded; it is optional", "modprobe gdrdrv")
    elif not host.has("/dev/gdrdrv"):
        fix = device_hint(host, "/dev/gdrdrv") if is_container(host) else MAKE_FILE
        yield failed(f"gdrdrv {version} is loaded, and /dev/gdrdrv is missing", MINOR, fix)
    else:
        yield passed(f"gdrdrv {version}")
