"""A port of an InfiniBand, RoCE or EFA device."""

from __future__ import annotations

from typing import NamedTuple


class Port(NamedTuple):
    """A port. `state`: active, init, armed, down; `physical`: linkup, polling, disabled; `rate` in Gb/s; `layer`:
    InfiniBand, Ethernet or EFA; `kind`: the model of the adapter; `board`: its board, which has firmware of its own."""

    device: str
    number: int
    state: str
    physical: str
    rate: int
    layer: str
    firmware: str = ""
    kind: str = ""
    board: str = ""

    @property
    def active(self) -> bool:
        return self.state == "active" and self.physical in ("linkup", "")

    @property
    def name(self) -> str:
        return f"{self.device}:{self.number}"
