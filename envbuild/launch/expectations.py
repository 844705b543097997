"""Figures that a healthy node reaches with a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envbuild.launch.programs import program_of
from envbuild.spec.target import Target
from envbuild.verify.floor import find_floor

LOOPBACK = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")  # between GPUs of one node, over the NICs
PROGRAMS = {"nvbandwidth": "host_device_bandwidth", "bandwidthTest": "host_device_bandwidth"}
PROGRAMS["ib_write_bw"] = "ib_write_bandwidth_gdr"


def expected(
    target: Target, command: Sequence[str], nodes: int, env: Mapping[str, str], *, whole: bool = True
) -> tuple[str, ...]:
    """Return lines with the figure that a benchmark must reach on such nodes; none for other commands, and none for
    collectives of some of their GPUs (not `whole`)."""
    name = threshold_name(command, nodes, env)
    if not name or (name.endswith("_busbw") and not whole):
        return ()
    floor = find_floor(target, name, nodes, env.get("NCCL_ALGO", ""))
    return (str(floor),) if floor else ()


def threshold_name(command: Sequence[str], nodes: int, env: Mapping[str, str]) -> str:
    """Return the name of the threshold that a benchmark is compared with; empty for other commands."""
    program = program_of(command)
    if program != "all_reduce_perf":
        return PROGRAMS.get(program, "")
    if all(env.get(name) == "1" for name in LOOPBACK):
        return "ib_loopback_allreduce_busbw"
    return {1: "node_allreduce_busbw", 2: "two_node_allreduce_busbw"}.get(nodes, "")
