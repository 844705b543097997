"""``ib_write_bw`` and the other bandwidth programs of perftest: the row below the header, the end by the closing line.

Format: linux-rdma/perftest src/perftest_parameters.h (RESULT_FMT). ``MB/sec`` are MiB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .labels import unlabelled_lines

HEADER = re.compile(r"\s*#bytes\s+#iterations\s+BW peak\[([^\]]+)\]\s+BW average\[([^\]]+)\]\s+MsgRate\[[^\]]+\]")
CLOSING = re.compile(r"-{20,}\s*$")
DEVICE = re.compile(r"Device\s*:\s*(\S+)")
GBITS = {"Gb/sec": 1.0, "MB/sec": 8 * 1024**2 / 1e9, "MiB/sec": 8 * 1024**2 / 1e9}


@dataclass(frozen=True)
class Row:
    """One message size in bytes, with its bandwidth in Gb/s."""

    size: int
    peak: float
    average: float


@dataclass(frozen=True)
class PerftestRun:
    """One run: its device, its rows, and whether the closing line came."""

    device: str
    rows: tuple[Row, ...]
    ended: bool

    @property
    def fault(self) -> str:
        """Return why the run proves nothing, or ""."""
        if not self.rows:
            return "incomplete: it printed no row"
        return "" if self.ended else "incomplete: the closing line is missing"


def parse_perftest(text: str) -> PerftestRun:
    """Return the run that a text contains, as far as it goes."""
    device, ended = "", False
    rows: list[Row] = []
    factor: float | None = None
    for line in unlabelled_lines(text):
        words = line.split()
        if found := HEADER.match(line):
            factor = GBITS.get(found[2])
        elif factor is None:
            device = device or (DEVICE.search(line) or ["", ""])[1]
        elif CLOSING.match(line):
            ended = True
        elif len(words) == 5 and words[0].isdigit() and words[1].isdigit():
            try:
                rows.append(Row(int(words[0]), float(words[2]) * factor, float(words[3]) * factor))
            except ValueError:
                continue
    return PerftestRun(device, tuple(rows), ended)
