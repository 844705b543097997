"""``all_reduce_perf`` and the other programs of nccl-tests: columns by the header line, the end by the closing lines.

Formats: NVIDIA/nccl-tests v2.9.0 to v2.19.6, src/common.cu. Before 2.13 all_reduce has no column ``root``, and
``error`` instead of ``#wrong``; ``-I 1`` adds columns, ``-S 1`` a date and a time after them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .labels import unlabelled_lines

DATE_AND_TIME = 2  # words that -S 1 adds without a heading
RANK = re.compile(
    r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+(\d+)\s+\[([^\]]*)\]\s*(.*)$"
)
LARGEST = re.compile(r"\bmaxBytes:? (\d+)")
REDUCED = re.compile(r"# Reducing maxBytes to (\d+)")
BOUNDS = re.compile(r"# Out of bounds values\s*:\s*(\d+)\s+(\S+)")
AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*([\d.eE+]+)")
VERSIONS = re.compile(r"# nccl-tests version (\S+) nccl-headers=(\d+) nccl-library=(\d+)")
LIBRARY = re.compile(r"\bNCCL version (\d[\w.+]*)")
ALIGNMENT = 16  # bytes for each rank, to which sizes are rounded down


@dataclass(frozen=True)
class Half:
    """Out-of-place or in-place: microseconds, GB/s (10^9 bytes), and how many values are wrong (None: not checked)."""

    time: float
    algbw: float
    busbw: float
    wrong: float | None


@dataclass(frozen=True)
class Row:
    """One size in bytes."""

    size: int
    out_of_place: Half
    in_place: Half | None

    @property
    def halves(self) -> tuple[Half, ...]:
        return (self.out_of_place, self.in_place) if self.in_place else (self.out_of_place,)


@dataclass(frozen=True)
class Rank:
    """A rank as the program lists it."""

    number: int
    host: str
    device: int
    bus: str
    gpu: str


@dataclass(frozen=True)
class NcclRun:
    """One run. `out_of_bounds`: -1 before its line. `headers`: more than one is several runs in one text.

    `largest`: the last size that was requested; 0: it was not printed.
    """

    rows: tuple[Row, ...]
    ranks: tuple[Rank, ...]
    headers: int
    out_of_bounds: int
    average: float | None
    largest: int
    library: str
    version: str

    def fault(self, ranks: int = 0, hosts: int = 0, largest: int = 0) -> str:
        """Return why the run proves nothing, or "". 0: not known; `largest`: the last size of the command line."""
        last, wanted = (self.rows[-1].size if self.rows else 0), largest or self.largest
        missing = wanted - last
        if self.headers > 1:
            return f"{self.headers} runs in one output: the program has no MPI, and each rank ran alone"
        if not self.headers or not self.rows:
            return "incomplete: it printed no row"
        if self.out_of_bounds < 0 or self.average is None:
            return f"incomplete: the closing lines are missing, the last row is of {last} bytes"
        if wanted and not 0 <= missing < ALIGNMENT * max(len(self.ranks), 1):
            return f"incomplete: the last row is of {last} bytes, and {wanted} were requested"
        if ranks and len(self.ranks) != ranks:
            return f"{len(self.ranks)} ranks took part, and {ranks} were started"
        if hosts and len({rank.host for rank in self.ranks}) != hosts:
            return f"{len({rank.host for rank in self.ranks})} hosts took part, and {hosts} were requested"
        return ""

    @property
    def points(self) -> list[tuple[int, float]]:
        """Return (bytes, bus bandwidth) of each row, out of place."""
        return [(row.size, row.out_of_place.busbw) for row in self.rows]

    def wrong(self) -> str:
        """Return which results are wrong or were not checked, or ""."""
        if self.out_of_bounds:
            return f"{self.out_of_bounds} values out of bounds"
        for row in self.rows:
            for half in row.halves:
                if half.wrong is None:
                    return f"the results of {row.size} bytes were not checked (-c 0)"
                if half.wrong:
                    return f"{half.wrong:g} wrong values at {row.size} bytes"
        return ""


def parse_nccl_tests(text: str) -> NcclRun:
    """Return the run that a text contains, as far as it goes."""
    columns: list[str] = []
    rows: list[Row] = []
    ranks: list[Rank] = []
    headers, bounds, largest = 0, -1, 0
    average: float | None = None
    library = version = ""
    for line in unlabelled_lines(text):
        if line.startswith("#"):
            words = line[1:].split()
            if words[:2] == ["size", "count"] and "busbw" in words:
                columns, headers = words, headers + 1
            elif found := RANK.match(line.rstrip()):
                ranks.append(Rank(int(found[1]), found[2], int(found[3]), found[4], found[5]))
            elif found := REDUCED.match(line) or LARGEST.search(line):
                largest = int(found[1])
            elif found := BOUNDS.match(line):
                bounds = int(found[1]) if found[2] == "OK" else max(int(found[1]), 1)
            elif found := AVERAGE.match(line):
                average = float(found[1])
            elif found := VERSIONS.match(line):
                version, library = found[1], library or found[3]
        elif found := LIBRARY.search(line):
            library = found[1]
        elif columns and (row := parse_row(line.split(), columns)):
            rows.append(row)
    return NcclRun(tuple(rows), tuple(ranks), headers, bounds, average, largest, library, version)


def parse_row(words: list[str], columns: list[str]) -> Row | None:
    """Return a row; None for a line that is not a whole one."""
    if len(words) not in (len(columns), len(columns) + DATE_AND_TIME) or not words[0].isdigit():
        return None
    halves: list[Half] = []
    starts = [place for place, name in enumerate(columns) if name == "time"]
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(columns)
        half = parse_half({columns[place]: words[place] for place in range(start, end)})
        if half is None:
            return None
        halves.append(half)
    return Row(int(words[0]), halves[0], halves[1] if len(halves) > 1 else None) if halves else None


def parse_half(values: dict[str, str]) -> Half | None:
    """Return one half of a row. ``error``, of versions before 2.13, is a difference: less than 1e-2 is none wrong."""
    try:
        wrong: float | None = None
        if "#wrong" in values:
            wrong = None if values["#wrong"] == "N/A" else float(values["#wrong"])
        elif values.get("error", "N/A") != "N/A":
            wrong = 0.0 if float(values["error"]) < 1e-2 else 1.0
        return Half(float(values["time"]), float(values["algbw"]), float(values["busbw"]), wrong)
    except (KeyError, ValueError):
        return None
