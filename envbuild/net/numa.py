"""NUMA nodes of a kind of machine: how many, their CPUs, and which of them each GPU is attached to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envbuild.core.yaml_nodes import Node, Scalar
from envbuild.core.yaml_reader import Reader

EXAMPLE = "write numa: {nodes: 2, cpus: 48, gpus: [0, 0, 0, 0, 1, 1, 1, 1]}"
MAX_NODES, MAX_CPUS, MAX_GPUS = 64, 1024, 64


@dataclass(frozen=True, slots=True)
class Numa:
    """`nodes` NUMA nodes of `cpus` CPUs each, numbered one after the other: node 0 has the CPUs 0 to `cpus` - 1.
    `gpus`: the node of each GPU, in the order of the bus."""

    nodes: int
    cpus: int
    gpus: tuple[int, ...]


def read_numa(reader: Reader, node: Node, gpus: int = 0) -> Numa | None:
    """Return the NUMA nodes of a target or a site; report mistakes. `gpus`: how many the machine has; 0: unknown."""
    entries = reader.table(node, ("nodes", "cpus", "gpus"), "numa", "'numa'")
    limits = {"nodes": MAX_NODES, "cpus": MAX_CPUS}
    counts = {key: reader.value(entries[key], int, key) for key in limits if key in entries}
    listed = [_read_index(reader, item) for item in reader.items(entries["gpus"], "gpus")] if "gpus" in entries else []
    if set(entries) != {"nodes", "cpus", "gpus"}:
        reader.wrong(node.where, "'numa' needs nodes, cpus and gpus", EXAMPLE)
        return None
    for key, count in counts.items():
        if count is not None and not 0 < count <= limits[key]:
            reader.wrong(entries[key].where, f"'{key}' must be between 1 and {limits[key]}, not {count}", EXAMPLE)
            return None
    if None in counts.values() or None in listed:
        return None
    places = tuple(index for index in listed if index is not None)
    if any(index >= counts["nodes"] for index in places) or len(places) > MAX_GPUS:
        last = counts["nodes"] - 1
        reader.wrong(entries["gpus"].where, f"'gpus' lists the NUMA node of each GPU: 0 to {last}", EXAMPLE)
        return None
    if gpus and len(places) != gpus:
        reader.wrong(entries["gpus"].where, f"'gpus' lists {len(places)} GPUs, and a node has {gpus}", EXAMPLE)
        return None
    return Numa(counts["nodes"], counts["cpus"], places)


def _read_index(reader: Reader, node: Node) -> int | None:
    if isinstance(node, Scalar) and node.kind == "number" and re.fullmatch("[0-9]{1,3}", node.value):
        return int(node.value)
    reader.wrong(node.where, "'gpus' must be a list of NUMA nodes", EXAMPLE)
    return None
