"""Slurm knows this node, does not drain it, and has its GPUs configured."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import module_gpus
from ..facts.place import COMPUTE, STOPPED, find_place
from ..facts.slurm import failing_states, node_answer
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, Need, Result, failed, not_run, passed
from ..tools.scontrol import gpus_of
from ..tools.slurm_fault import CONTROLLER, MUNGE, SETTINGS, VERSIONS
from .gpu_count import MISSING

GROUP = "Slurm"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read what the controller has about the node."""
    if find_place(host)[0] != COMPUTE:
        yield not_run("this is not a compute node")
        return
    node, fault = node_answer(host)
    stopped = find_place(host)[1] == STOPPED
    if fault and fault.cause == SETTINGS:
        more = "slurmd does not run; " if stopped else ""
        fix = f"{fault.fix}; then: {starting(host)}" if stopped else fault.fix
        yield failed(f"{more}{fault.detail}", ADMINISTRATOR, fix, drains=False)
        return
    if stopped:
        yield failed("slurmd does not run", ADMINISTRATOR, starting(host))
    if fault and fault.cause in (MUNGE, VERSIONS, CONTROLLER):  # jobs that run here continue
        yield failed(fault.detail, ADMINISTRATOR, fault.fix, drains=False)
        return
    if fault:
        yield not_run(fault.detail, fault.fix)
        return
    bad = failing_states(node)
    configured, here = gpus_of(node), len(module_gpus(host))
    if bad:
        reason = node.get("Reason", "")
        name = node.get("NodeName", "…")
        fix = f"after the repair: scontrol update NodeName={name} State=RESUME"
        if not set(bad) - {"NOT_RESPONDING"}:  # it returns by itself
            fix = f"{starting(host)}; the address that the controller has: scontrol show node {name} | grep NodeAddr"
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


def starting(host: Host) -> str:
    """Return the commands that start slurmd, or show why it ends."""
    if host.has("/run/systemd/system"):
        return "systemctl status slurmd; journalctl -u slurmd -n 20; systemctl restart slurmd"
    return "as root: slurmd -Dvv, which prints why it ends; then: slurmd"
