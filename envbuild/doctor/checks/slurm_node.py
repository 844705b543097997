"""Slurm knows this node, and does not drain it."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.place import COMPUTE, STOPPED, ZOMBIE, find_place
from ..facts.slurm import failing_states, node_answer
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..tools.scontrol import WAITING, states
from ..tools.slurm_fault import CONTROLLER, MUNGE, SETTINGS, VERSIONS

GROUP = "Slurm"
REBOOTS = ("REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED")  # of scontrol reboot


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read what the controller has about the node."""
    if find_place(host)[0] != COMPUTE:
        yield not_applicable("this is not a compute node")
        return
    node, fault = node_answer(host)
    stopped = {STOPPED: "slurmd does not run", ZOMBIE: "slurmd is a zombie"}.get(find_place(host)[1], "")
    if fault and fault.cause == SETTINGS:
        more = f"{stopped}; " if stopped else ""
        fix = f"{fault.fix}; then: {starting(host)}" if stopped else fault.fix
        yield failed(f"{more}{fault.detail}", ADMINISTRATOR, fix, drains=False)
        return
    if stopped:
        yield failed(stopped, ADMINISTRATOR, starting(host))
    if fault and fault.cause in (MUNGE, VERSIONS, CONTROLLER):  # jobs that run here continue
        yield failed(fault.detail, ADMINISTRATOR, fault.fix, drains=False)
        return
    if fault:
        yield not_run(fault.detail, fault.fix)
        return
    if failing_states(node):
        yield state_result(host, node)
    elif "State" not in node:
        yield not_run("the answer of scontrol is truncated")
    else:
        waits = ": it gets no jobs now" if set(states(node)) & set(WAITING) else ""
        version = f", Slurm {node['Version']}" if node.get("Version") else ""
        yield passed(f"state {node['State']}{waits}{version}")


def state_result(host: Host, node: dict[str, str]) -> Result:
    """Return the failure of a node that gets no jobs. It drains none: a second reason would replace the first."""
    bad, reason, name = set(failing_states(node)), node.get("Reason", ""), node.get("NodeName", "…")
    resume = f"after the repair: scontrol update NodeName={name} State=RESUME"
    if waits := set(states(node)) & set(REBOOTS):
        detail = f"state {node['State']}: a reboot {'is requested' if 'REBOOT_ISSUED' not in waits else 'runs'}"
        fix = f"none: it happens when the jobs have ended, and the node returns; or: scontrol cancel_reboot {name}"
        return failed(detail, MINOR, fix, drains=False)
    if "NOT_RESPONDING" not in bad and set(states(node)) & {"MAINT", "MAINTENANCE"}:
        fix = "scontrol show reservation: its end; a node that is drained after it: sinfo -R"
        return failed(f"state {node['State']}" + (f": {reason}" if reason else ""), MINOR, fix, drains=False)
    silent = f"{starting(host)}; the address that the controller has: scontrol show node {name} | grep NodeAddr"
    if bad == {"NOT_RESPONDING"}:  # it returns by itself
        fix = silent
    elif "NOT_RESPONDING" in bad:
        fix = f"{silent}; {resume}"
    elif bad & {"INVALID", "INVALID_REG", "UNKNOWN"}:
        fix = f"slurmd -C, compared with slurm.conf and gres.conf; {starting(host)}"
    else:
        fix = resume
    return failed(f"state {node['State']}" + (f": {reason}" if reason else ""), ADMINISTRATOR, fix, drains=False)


def starting(host: Host) -> str:
    """Return the commands that start slurmd, or show why it ends: never a second one, which ends the first."""
    if host.has("/run/systemd/system"):
        return "systemctl status slurmd; journalctl -u slurmd -n 20; systemctl restart slurmd"
    return "as root: pgrep -x slurmd || slurmd -Dvv, which prints why it ends; then: slurmd"
