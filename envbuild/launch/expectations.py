"""Figures that a healthy node reaches with a command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from envbuild.launch.programs import program_of
from envbuild.spec.target import Target
from envbuild.verify.floor import Floor, find_floor

LOOPBACK = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")  # between GPUs of one node, over the NICs
DEFAULT_SIZE = 32 << 20  # NVIDIA/nccl-tests, src/common.cu
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
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
    algorithm = env.get("NCCL_ALGO", "")
    floor = find_floor(target, name, nodes, algorithm)
    return (f"{floor}{other_command(floor, command, algorithm)}",) if floor else ()


def other_command(floor: Floor, command: Sequence[str], algorithm: str) -> str:
    """Return the command that a floor is for, where it is not this one: NCCL's own choice of an algorithm may pass a
    floor of the ring beside a NIC that has failed, and small messages do not reach one of large ones."""
    same_algorithm = floor.algorithm in ("", algorithm)
    if same_algorithm and largest_size(command) >= floor.size:
        return ""
    env = f"-e NCCL_ALGO={floor.algorithm} " if floor.algorithm else ""
    power = 1 << (floor.size - 1).bit_length()  # a size that doubling reaches
    size = f" -b 16M -e {power >> 30}G" if floor.size else ""
    return f"; not of this command, but of: {env}-- all_reduce_perf{size} -f 2 -g 1"


def largest_size(command: Sequence[str]) -> int:
    """Return the largest message of a program of nccl-tests in bytes, whose default is 32 MB."""
    found = DEFAULT_SIZE
    for word, after in pairwise([*command, ""]):
        value = after if word in ("-e", "--maxbytes") else word.removeprefix("--maxbytes=")
        if (number := re.fullmatch(r"([0-9]+)([KMG]?)", value, re.IGNORECASE)) and (value is after or value != word):
            found = int(number[1]) * UNITS[number[2].upper()]
    return found


def threshold_name(command: Sequence[str], nodes: int, env: Mapping[str, str]) -> str:
    """Return the name of the threshold that a benchmark is compared with; empty for other commands."""
    program = program_of(command)
    if program != "all_reduce_perf":
        return PROGRAMS.get(program, "")
    if all(env.get(name) == "1" for name in LOOPBACK):
        return "ib_loopback_allreduce_busbw"
    return {1: "node_allreduce_busbw", 2: "two_node_allreduce_busbw"}.get(nodes, "")
