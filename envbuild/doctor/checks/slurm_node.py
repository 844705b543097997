"""Slurm knows this node, does not drain it, and has its GPUs configured."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import NVIDIA, is_divided, pci_devices, pci_gpus, smi_report, usable_gpus
from ..facts.node_kind import has_partitions
from ..facts.place import COMPUTE, STOPPED, ZOMBIE, find_place
from ..facts.slurm import failing_states, node_answer
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, MINOR, Need, Result, failed, not_run, passed
from ..tools.scontrol import WAITING, gpus_of, states
from ..tools.slurm_fault import CONTROLLER, MUNGE, SETTINGS, VERSIONS
from .gpu_count import MISSING

GROUP = "Slurm"
REBOOTS = ("REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED")  # of scontrol reboot


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read what the controller has about the node."""
    if find_place(host)[0] != COMPUTE:
        yield not_run("this is not a compute node")
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
    configured, here = gpus_of(node), len(usable_gpus(host))
    if failing_states(node):
        yield state_result(host, node)
    elif "State" not in node or configured is None:
        yield not_run("the answer of scontrol is truncated")
    elif has_partitions(host, node, configured):
        yield passed(f"state {node['State']}, {configured} GPUs and partitions of GPUs (MIG), which are not compared")
    elif divided := [gpu.bus for gpu in smi_report(host).gpus if is_divided(gpu)]:
        fix = f"nvidia-smi -mig 0 -i {','.join(divided)} (as root); or the types of its partitions in gres.conf"
        detail = f"Slurm has {configured} whole GPUs configured, and these are divided (MIG): {', '.join(divided)}"
        yield failed(detail, ADMINISTRATOR, fix)
    elif configured and not here and (unknown := not_compared(host)):
        yield not_run(f"state {node['State']}, {configured} GPUs in Slurm, not compared: {unknown}")
    elif here < configured:
        gres = f"gres.conf and Gres=gpu:{here} of slurm.conf" if here else "slurm.conf without Gres=gpu for it"
        fix = f"{MISSING}; if the node has {here}: {gres}"
        where = "the driver has" if here else "on the PCI bus there are"
        detail = f"Slurm has {configured} GPUs configured, and {where} {here}: {configured - here} missing"
        yield failed(detail, HARDWARE, fix)
    elif here > configured:  # as configured: a site may leave one out
        detail = f"Slurm has {configured} GPUs configured, and the driver has {here}"
        yield failed(detail, MINOR, "gres.conf: AutoDetect=nvml; slurm.conf: Gres=gpu:N")
    else:
        waits = ": it gets no jobs now" if set(states(node)) & set(WAITING) else ""
        version = node.get("Version", "")
        yield passed(f"state {node['State']}{waits}, {configured} GPUs, Slurm {version}".rstrip(" ,"))


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


def not_compared(host: Host) -> str:
    """Return why Slurm's GPUs are not compared with this machine, whose NVIDIA driver has none; "" if they are."""
    if not pci_devices(host):
        return "the PCI bus cannot be read"
    if pci_gpus(host):
        return "the driver lists no GPU"
    others = [one.slot for one in pci_devices(host) if one.vendor != NVIDIA and is_accelerator(one.kind)]
    return f"accelerators of another vendor: {', '.join(others[:8])}" if others else ""


def is_accelerator(kind: str) -> bool:
    """Return whether a class of the PCI bus is that of GPUs without a screen, or of other accelerators (pci.ids)."""
    return kind in ("0302", "0380") or kind.startswith("12")


def starting(host: Host) -> str:
    """Return the commands that start slurmd, or show why it ends: never a second one, which ends the first."""
    if host.has("/run/systemd/system"):
        return "systemctl status slurmd; journalctl -u slurmd -n 20; systemctl restart slurmd"
    return "as root: pgrep -x slurmd || slurmd -Dvv, which prints why it ends; then: slurmd"
