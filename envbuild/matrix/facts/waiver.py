"""Waivers: in a module of its own, so that reading an image spec does not load the fact model (8 ms of start-up)."""

from __future__ import annotations

from typing import NamedTuple


class Waiver(NamedTuple):
    """A fact that an image sets aside, and why; `where` is its place in the spec."""

    fact: str
    reason: str
    where: str = ""
