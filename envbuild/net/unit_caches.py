"""Caches of units that a site names: registries and folders with what other machines built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class UnitCache:
    """A cache: the layout `folder`, or the repository of a registry that `at` names. `at` is its name in messages and
    records.

    `write`: units that are built here are sent there.
    """

    at: str
    folder: Path | None = None
    write: bool = False
