"""On a login node: Slurm answers, and has usable nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..facts.place import LOGIN, find_place, slurm_name
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..tools.sinfo import COMMAND, parse_sinfo
from ..tools.slurm_fault import ASK_CONTROLLER, slurm_fault
from .slurm_node import starting

GROUP = "Slurm"
PLANNED = ("maint", "reboot", "boot", "reboot_issued", "reboot_requested")  # states of sinfo(1) that end by themselves


def check(host: Host, need: Need) -> Iterator[Result]:
    """Count the nodes by their states."""
    if find_place(host)[0] != LOGIN:
        yield not_applicable("this is not a login node")
        return
    output = host.output(*COMMAND)
    rows = {row.node: row for row in parse_sinfo(output.text)}
    own = rows.get(slurm_name(host))
    if own:  # slurmd does not run here, or this would be a compute node
        yield failed(
            f"slurmd does not run, and Slurm has this machine as a node: {own.node}, {own.state}",
            ADMINISTRATOR,
            starting(host),
        )
    fault = slurm_fault(output, "sinfo")
    if fault and output.fault:
        yield not_run(fault.detail, fault.fix)
    elif fault:
        detail = fault.detail if fault.cause else output.failure("sinfo", last=True)
        yield failed(detail, ADMINISTRATOR, fault.fix or ASK_CONTROLLER, drains=False)
    elif not rows:
        yield not_run("sinfo lists no node")
    else:
        counts = Counter(row.state for row in rows.values())
        listed = ", ".join(f"{number} {state}" for state, number in counts.most_common())
        if not any(row.usable for row in rows.values()):
            reasons = {row.reason for row in rows.values() if row.reason not in ("", "none")}
            detail = f"no usable node: {listed}" + (f" ({'; '.join(sorted(reasons)[:3])})" if reasons else "")
            if set(counts) <= set(PLANNED):
                fix = "none: the nodes return after maintenance or their reboot; scontrol show reservation"
                yield failed(detail, MINOR, fix, drains=False)
            else:
                yield failed(detail, ADMINISTRATOR, "sinfo -R", drains=False)
        else:
            yield passed(listed)
