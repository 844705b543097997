"""Slurm knows this node, does not drain it, and has its GPUs configured."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import module_gpus
from ..facts.place import COMPUTE, STOPPED, find_place, slurm_name
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, Need, Result, failed, not_run, passed
from ..tools.scontrol import FAILING, gpus_of, parse_node, states
from .gpu_count import MISSING

GROUP = "Slurm"
STARTING = "systemctl status slurmd; journalctl -u slurmd -n 20; systemctl restart slurmd"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read what the controller has about the node."""
    if find_place(host)[0] != COMPUTE:
        yield not_run("this is not a compute node")
        return
    if find_place(host)[1] == STOPPED:
        yield failed("slurmd does not run", ADMINISTRATOR, STARTING)
    if not host.programs.find("scontrol"):
        yield not_run("scontrol is not installed")
        return
    output = host.output(*node_command(host))
    node = parse_node(output.text)
    if output.fault or output.code:
        yield not_run(output.failure("scontrol show node"))
        return
    bad = [state for state in states(node) if state in FAILING]
    configured, here = gpus_of(node), len(module_gpus(host))
    if bad:
        reason = node.get("Reason", "")
        fix = f"after the repair: scontrol update NodeName={node.get('NodeName', '…')} State=RESUME"
        detail = f"state {node['State']}" + (f": {reason}" if reason else "")
        yield failed(detail, ADMINISTRATOR, fix, drains=False)  # with a second reason the first would be lost
    elif "State" not in node or configured is None:
        yield not_run("the answer of scontrol is truncated")
    elif 0 < here < configured:
        fix = f"{MISSING}; if the node has {here}: gres.conf and Gres=gpu:{here} of slurm.conf"
        yield failed(
            f"Slurm has {configured} GPUs configured, and the driver has {here}: one is missing", HARDWARE, fix
        )
    elif here > configured:
        yield failed(
            f"Slurm has {configured} GPUs configured, and the driver has {here}",
            ADMINISTRATOR,
            "gres.conf: AutoDetect=nvml; slurm.conf: Gres=gpu:N",
        )
    else:
        yield passed(f"state {node['State']}, {configured} GPUs, Slurm {node.get('Version', '')}".rstrip(" ,"))


def node_command(host: Host) -> tuple[str, ...]:
    """Return the command line."""
    return ("scontrol", "-o", "show", "node", slurm_name(host))
