"""On a login node: Slurm answers, and has usable nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ..facts.place import LOGIN, find_place, slurm_name
from ..host import Host
from ..model import ADMINISTRATOR, Need, Result, failed, not_run, passed
from ..tools.sinfo import COMMAND, parse_sinfo
from .slurm_node import STARTING

GROUP = "Slurm"
CONTROLLER = "scontrol ping; on the controller: systemctl status slurmctld munge"
# Slurm's messages where it has no slurm.conf (of a host without one, and of one that it cannot open), and where this
# machine's munge does not answer
CAUSES = (
    (
        re.compile(r"[Cc]ould not establish a configuration source|slurm\.conf.*(?:No such file|[Uu]nable to)"),
        "SLURM_CONF=/path/of/slurm.conf sinfo; or slurm.conf of the controller in /etc/slurm",
    ),
    (
        re.compile(r"[Mm]unge (?:encode|decode) failed|[Mm]unge credential|munge\.socket"),
        "on this machine: systemctl restart munge; systemctl status munge; the controller's munge.key, and its clock",
    ),
)


def check(host: Host, need: Need) -> Iterator[Result]:
    """Count the nodes by their states."""
    if find_place(host)[0] != LOGIN:
        yield not_run("this is not a login node")
        return
    output = host.output(*COMMAND)
    rows = {row.node: row for row in parse_sinfo(output.text)}
    own = rows.get(slurm_name(host))
    if own:  # slurmd does not run here, or this would be a compute node
        yield failed(
            f"slurmd does not run, and Slurm has this machine as a node: {own.node}, {own.state}",
            ADMINISTRATOR,
            STARTING,
        )
    if output.fault:
        yield not_run(output.fault)
    elif output.code:
        fix = next((fix for sign, fix in CAUSES if sign.search(output.errors)), CONTROLLER)
        yield failed(output.failure("sinfo", last=True), ADMINISTRATOR, fix, drains=False)
    elif not rows:
        yield not_run("sinfo lists no node")
    else:
        counts = Counter(row.state for row in rows.values())
        listed = ", ".join(f"{number} {state}" for state, number in counts.most_common())
        if not any(row.usable for row in rows.values()):
            reasons = {row.reason for row in rows.values() if row.reason not in ("", "none")}
            yield failed(
                f"no usable node: {listed}" + (f" ({'; '.join(sorted(reasons)[:3])})" if reasons else ""),
                ADMINISTRATOR,
                "sinfo -R",
                drains=False,
            )
        else:
            yield passed(listed)
