"""The CPU has the architecture and the instruction set that images of the target are built for."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.cpu import ORDER, cpu_level, cpu_model, machine, missing_flags
from ..host import Host
from ..model import HARDWARE, Need, Result, failed, not_run, passed

GROUP = "machine"
ARM = ("armv8-a", "armv9-a")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare architecture and level."""
    arch, level = machine(host), cpu_level(host)
    if need.arch and arch != need.arch:
        yield failed(
            f"CPU is {arch}, and {need.source} needs {need.arch}", HARDWARE, "use a node of that target", drains=False
        )
    elif not level:
        yield not_run("/proc/cpuinfo does not state the instruction set")
    elif not need.cpu:
        yield passed(f"{level} ({cpu_model(host)})" if cpu_model(host) else level)
    else:
        order = ORDER if need.cpu in ORDER else ARM
        if level not in order or order.index(level) < order.index(need.cpu):
            lacks = missing_flags(host, need.cpu) if need.cpu in ORDER else []
            flags = f": without {', '.join(lacks)}" if lacks else ""
            hint = "a virtual machine: pass the host's CPU on (cpu: host-passthrough); else use another node"
            yield failed(f"CPU has {level}, and {need.source} needs {need.cpu}{flags}", HARDWARE, hint, drains=False)
        else:
            yield passed(f"{level}, needed: {need.cpu}")
