"""``nvidia-smi topo -m``: the links between GPUs, and between GPUs and NICs.

Columns are separated by tabs (newer versions, with an empty field before the last) or by blanks; NICs have their own
names (old versions) or NIC0, NIC1 with a legend below."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

STYLE = re.compile(r"\x1b\[[0-9;]*m")  # a terminal's underline
DEVICE = re.compile(r"(?:GPU|NIC)\d+$|mlx\w+$")
LINK = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS")


@dataclass(frozen=True)
class Topology:
    """The matrix. `links`: (row, column) → X, NV18, PIX, PXB, PHB, NODE, SYS."""

    devices: tuple[str, ...] = ()
    links: dict[tuple[str, str], str] = field(default_factory=dict)
    has_legend: bool = False

    @property
    def gpus(self) -> list[str]:
        return [name for name in self.devices if name.startswith("GPU")]

    @property
    def complete(self) -> bool:
        pairs = [(row, column) for row in self.gpus for column in self.devices]
        return bool(self.gpus) and self.has_legend and all(pair in self.links for pair in pairs)

    def nvlinks(self) -> dict[tuple[str, str], int]:
        """Return the number of NVLinks of each pair of GPUs; 0 where there is none."""
        pairs = [(one, two) for at, one in enumerate(self.gpus) for two in self.gpus[at + 1 :]]
        kinds = {pair: self.links.get(pair, "") for pair in pairs}
        return {pair: int(kind[2:]) if kind.startswith("NV") else 0 for pair, kind in kinds.items()}


def parse_topology(text: str) -> Topology:
    """Return the matrix of ``nvidia-smi topo -m``."""
    devices: list[str] = []
    links: dict[tuple[str, str], str] = {}
    has_legend = False
    for raw in text.splitlines():
        line = STYLE.sub("", raw)
        cells = [cell.strip() for cell in (line.split("\t") if "\t" in line else re.split(r" {2,}", line.strip()))]
        named = [cell for cell in cells if DEVICE.match(cell)]
        if not devices:
            devices = named if len(named) > 1 or (named and "CPU Affinity" in cells) else []
        elif line.startswith("Legend:"):
            has_legend = True
        elif not has_legend and cells and cells[0] in devices:
            for column, cell in list(zip(devices, cells[1:]))[: len(devices)]:  # noqa: B905
                if LINK.fullmatch(cell):
                    links[cells[0], column] = cell
    return Topology(tuple(devices), links, has_legend)
