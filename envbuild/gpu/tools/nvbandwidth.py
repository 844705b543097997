"""``nvbandwidth``: one matrix for each test, closed by its line ``SUM``, which is compared with the matrix.

Format: NVIDIA/nvbandwidth v0.8, output.cpp and README.md. GB/s are 10^9 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

RUNNING = re.compile(r"Running (\w+)\.\s*$")
SUM = re.compile(r"SUM (\w+) ([\d.]+)\s*$")
SHARE = 1e-3  # of the sum, for the rounding of the printed numbers


@dataclass(frozen=True)
class Matrix:
    """The bandwidths of one test, in GB/s; None is ``N/A``. `total`: of the closing line, None before it."""

    test: str
    rows: tuple[tuple[float | None, ...], ...]
    total: float | None

    @property
    def values(self) -> tuple[float, ...]:
        """Return the measured bandwidths: the diagonal of a matrix between GPUs is 0 or N/A."""
        return tuple(value for row in self.rows for value in row if value)

    @property
    def least(self) -> float:
        return min(self.values, default=0.0)


def parse_nvbandwidth(text: str) -> tuple[Matrix, ...]:
    """Return the tests that a text contains, as far as they go."""
    found: list[Matrix] = []
    name = ""
    columns = 0
    rows: list[tuple[float | None, ...]] = []
    for line in text.splitlines():
        words = line.split()
        if start := RUNNING.match(line):
            if name:
                found.append(Matrix(name, tuple(rows), None))
            name, columns, rows = start[1], 0, []
        elif (end := SUM.match(line)) and end[1] == name:
            found.append(Matrix(name, tuple(rows), float(end[2])))
            name = ""
        elif name and not columns and words == [str(number) for number in range(len(words))]:
            columns = len(words)
        elif name and columns and len(words) == columns + 1 and words[0].isdigit():
            rows.append(tuple(number(word) for word in words[1:]))
    return (*found, Matrix(name, tuple(rows), None)) if name else tuple(found)


def number(word: str) -> float | None:
    """Return a cell of a matrix; None for N/A."""
    return float(word) if re.fullmatch(r"\d+(\.\d+)?", word) else None


def matrix_fault(matrices: Sequence[Matrix], test: str) -> str:
    """Return why the matrix of a test proves nothing, or ""."""
    matrix = next((item for item in matrices if item.test == test), None)
    if matrix is None:
        return f"incomplete: it printed nothing about {test}"
    if matrix.total is None or not matrix.values:
        return f"incomplete: the closing line of {test} is missing"
    if abs(sum(matrix.values) - matrix.total) > max(SHARE * matrix.total, 0.01 * len(matrix.values)):
        return f"incomplete: the sum of {test} is {matrix.total:g}, and its rows have {sum(matrix.values):g}"
    return ""
