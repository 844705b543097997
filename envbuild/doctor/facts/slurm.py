"""The controller's answer about this node."""

from __future__ import annotations

from ..host import Host
from ..tools.scontrol import FAILING, WAITING, parse_node, states
from ..tools.slurm_fault import UNKNOWN_NODE, SlurmFault, slurm_fault
from .place import COMPUTE, find_place, slurm_name

DRAINS = {"DRAIN", "DRAINED", "DRAINING"}


def node_command(host: Host) -> tuple[str, ...]:
    """Return the command line."""
    return ("scontrol", "-o", "show", "node", slurm_name(host))


def node_answer(host: Host) -> tuple[dict[str, str], SlurmFault | None]:
    """Return the values of this node, and why they are not known (None if they are)."""
    return host.once(read_node)


def read_node(host: Host) -> tuple[dict[str, str], SlurmFault | None]:
    """Ask the controller."""
    output = host.output(*node_command(host))
    fault = slurm_fault(output, "scontrol show node")
    return ({} if fault else parse_node(output.text)), fault


def failing_states(node: dict[str, str]) -> list[str]:
    """Return the parts of a node's state for which it gets no jobs."""
    return [state for state in states(node) if state in FAILING]


def known_name(host: Host) -> str:
    """Return Slurm's name of the machine; "" if the controller has no node of that name."""
    fault = node_answer(host)[1] if find_place(host)[0] == COMPUTE else None
    return "" if fault and fault.cause == UNKNOWN_NODE else slurm_name(host)


def drain_reason(host: Host) -> str:
    """Return the reason for which this node is drained, and nothing else is wrong with it in Slurm; or ""."""
    node = node_answer(host)[0] if find_place(host)[0] == COMPUTE else {}
    failing = set(failing_states(node))
    waits = set(states(node)) & set(WAITING)  # for a reboot, a reservation
    return node.get("Reason", "") if failing and failing <= DRAINS and not waits else ""


def has_reason(host: Host) -> bool:
    """Return whether this node gets no jobs for a reason, which a second one would replace."""
    node = node_answer(host)[0] if find_place(host)[0] == COMPUTE else {}
    return bool(failing_states(node) and node.get("Reason"))
