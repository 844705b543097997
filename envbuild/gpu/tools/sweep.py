"""Output of the sweep (`envbuild.gpu.sweep`): a head, a line of JSON for each size, and an end with their number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..model import Curve, bandwidth_curves

MARK = "envbuild-sweep "
WHOLE = ("nccl", "gloo")  # backends that have every operation of the sweep


@dataclass(frozen=True)
class SweepRow:
    """One operation with messages of `size` bytes: seconds of one, GB/s, and how many values are wrong."""

    op: str
    dtype: str
    size: int
    seconds: float
    algbw: float
    busbw: float
    wrong: int


@dataclass(frozen=True)
class Sweep:
    """One sweep. `head`: backend, ranks, device, versions. `ended`: the number of rows that the end states; -1: none.

    `refused`: operations that the backend does not have, each with its message.
    """

    head: Mapping[str, Any]
    rows: tuple[SweepRow, ...]
    refused: tuple[tuple[str, str], ...]
    ended: int

    @property
    def fault(self) -> str:
        """Return why the sweep proves nothing, or ""."""
        if not self.head or not self.rows:
            return "incomplete: it printed no row"
        if self.ended != len(self.rows):
            return "incomplete: the closing line is missing"
        if self.refused and self.head.get("backend") in WHOLE:
            return f"{self.head['backend']} refuses {', '.join(op for op, _ in self.refused)}: {self.refused[0][1]}"
        return ""

    @property
    def wrong(self) -> str:
        """Return which results are wrong, or ""."""
        bad = [row for row in self.rows if row.wrong]
        return "; ".join(f"{row.wrong} wrong values of {row.op} {row.dtype} with {row.size} bytes" for row in bad[:3])


def sweep_curves(sweep: Sweep) -> tuple[Curve, ...]:
    """Return the bus bandwidths of each operation and type, in their order."""
    names = dict.fromkeys((row.op, row.dtype) for row in sweep.rows)
    found = (
        bandwidth_curves(" ".join(name), [(row.size, row.busbw) for row in sweep.rows if (row.op, row.dtype) == name])
        for name in names
    )
    return tuple(curve for curves in found for curve in curves)


def parse_sweep(text: str) -> Sweep:
    """Return the sweep that a text contains, as far as it goes."""
    head: Mapping[str, Any] = {}
    rows: list[SweepRow] = []
    refused: list[tuple[str, str]] = []
    ended = -1
    for line in text.splitlines():
        start, mark, rest = line.partition(MARK)
        if not mark or start.strip("0123456789: "):
            continue
        try:
            value = json.loads(rest)
            if "backend" in value:
                head = value
            elif "end" in value:
                ended = int(value["end"])
            elif "refused" in value:
                refused.append((str(value["op"]), str(value["refused"])))
            else:
                rows.append(SweepRow(**value))
        except (ValueError, TypeError, KeyError):
            continue
    return Sweep(head, tuple(rows), tuple(refused), ended)
