"""Floors: figures that a healthy node reaches, each with its source. A measurement below one is a failure: the
tolerance is 0.

The thresholds of a target come first, then the published figures in ``floors/*.yaml`` (one file a source) that are of
the same GPU, number of GPUs, fabric, number of nodes and algorithm; last, what follows from the NICs, marked
as derived.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.spec.launch_profile import THRESHOLDS
from envbuild.spec.target import Target

FOLDER = Path(__file__).with_name("floors")
PEER = "peer_bandwidth"  # between two GPUs of a node, by the copy engines
TESTS = (*THRESHOLDS, PEER)
KEYS = {"schema", "source", "kind", "date", "floors"}
KINDS = ("file", "guide", "issue", "paper")  # of a source
SHARE = 0.92  # of the rate of the wire that NCCL reaches with one ring: 46 GB/s of 400 Gb/s
TWO_NODES = "two_node_allreduce_busbw"
RING = "RING"
DERIVED_SIZE = 16_000_000_000


@dataclass(frozen=True, slots=True)
class Floor:
    """A measurement of `test` reaches `at_least` of `unit`. `size`: bytes from which on it is valid; 0: it has none.

    `algorithm`: of NCCL_ALGO; empty: any. `because` names the source. `derived`: computed, not published.
    """

    test: str
    at_least: float
    unit: str
    because: str
    size: int = 0
    algorithm: str = ""
    derived: bool = False

    def __str__(self) -> str:
        return f"at least {self.at_least:g} {self.unit} ({self.test}): {self.because}"


@dataclass(frozen=True, slots=True)
class PublishedFloor:
    """A floor and the nodes it is for. `fabric`: its class, alone or with the NICs (``infiniband 8x400``)."""

    floor: Floor
    gpu: str
    gpus: int
    fabric: str
    nodes: int
    date: str
    file: str

    def fits(self, target: Target, nodes: int, algorithm: str) -> bool:
        """Return whether it is for these nodes, with this algorithm (empty: NCCL's choice)."""
        return (
            (self.gpu, self.gpus, self.nodes) == (target.gpu.split(" ")[0], target.gpus, nodes)
            and self.fabric in fabric_classes(target)
            and self.floor.algorithm in ("", algorithm)
        )


def fabric_classes(target: Target) -> tuple[str, ...]:
    """Return the classes of the target's fabric: ``infiniband``, and ``infiniband 8x400``."""
    nics = target.nics
    return (target.fabric, *([f"{target.fabric} {nics.count}x{nics.rate}"] if nics else []))


def find_floor(target: Target, test: str, nodes: int = 1, algorithm: str = "") -> Floor | None:
    """Return the floor of a measurement on nodes of a target; None where there is none."""
    if threshold := target.thresholds.get(test):
        return Floor(test, threshold.value, threshold.unit, threshold.because)
    fitting = [item for item in published_floors() if item.floor.test == test and item.fits(target, nodes, algorithm)]
    if fitting:
        return max(fitting, key=lambda item: (item.date, item.floor.at_least)).floor
    if test == TWO_NODES and target.nics and nodes == 2 and algorithm in ("", RING):
        nics = target.nics
        rate = nics.count * nics.rate / 8 * SHARE
        how = f"derived, {nics.count} NICs of {nics.rate} Gb/s x {SHARE}; with NCCL_ALGO={RING} and 16 GB"
        return Floor(test, round(rate, 1), "GB/s", how, DERIVED_SIZE, RING, derived=True)
    return None


@functools.cache
def published_floors() -> tuple[PublishedFloor, ...]:
    """Return the floors of all files."""
    return tuple(floor for path in sorted(FOLDER.glob("*.yaml")) for floor in read_floors(path))


def read_floors(path: Path) -> tuple[PublishedFloor, ...]:
    """Return the floors of one file. Raises KeyError, TypeError and ValueError if it contains anything else."""
    from envbuild.core.plain_yaml import load_plain

    value: Mapping[str, Any] = load_plain(path.read_text(encoding="utf-8"))
    if value["schema"] != 1 or value["kind"] not in KINDS or set(value) != KEYS:
        raise ValueError(f"{path.name}: unknown schema, kind or key")
    return tuple(one_floor(path.name, str(value["source"]), str(value["date"]), **item) for item in value["floors"])


def one_floor(
    file: str,
    source: str,
    date: str,
    *,
    test: str,
    gpu: str,
    gpus: int,
    fabric: str,
    at_least: float,
    unit: str,
    because: str,
    nodes: int = 1,
    size: int = 0,
    algorithm: str = "",
) -> PublishedFloor:
    """Return a floor from a line of a file. Raises ValueError for a test that does not exist and for a number below
    0."""
    if test not in TESTS or at_least <= 0 or unit != ("Gb/s" if test.startswith("ib_write") else "GB/s"):
        raise ValueError(f"{file}: not a floor: {test}, {at_least} {unit}")
    floor = Floor(test, float(at_least), unit, f"{because} ({source}, {date})", size, algorithm)
    return PublishedFloor(floor, gpu, gpus, fabric, nodes, date, file)
