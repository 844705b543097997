"""Measured bandwidths over message sizes, and the figures that a healthy node reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Floor(NamedTuple):
    """The figure that a healthy node reaches, and its source."""

    value: float
    because: str


@dataclass(frozen=True, slots=True)
class Series:
    """A measured bandwidth over message sizes. `points`: (bytes, value), sizes rising; `unit` of the values; `source`:
    how and where it was measured."""

    title: str
    unit: str
    points: tuple[tuple[int, float], ...]
    floor: Floor | None = None
    source: str = ""


class FloorRow(NamedTuple):
    """A floor that the target names for one measurement."""

    name: str
    value: float
    unit: str
    because: str
