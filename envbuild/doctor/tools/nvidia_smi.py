"""``nvidia-smi -q``: one section for each GPU, KEY : VALUE by indentation.

Versions 510 to 580 differ in their keys, so each value is searched by its section; lines of preloaded libraries
between them are left out. ``--query-gpu`` is not used: one unknown field of an older driver makes it fail as a
whole."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
LINE = re.compile(r"( *)(\S.*?)(?: +: ?(.*))?$")
UNKNOWN = ("", "n/a", "[n/a]", "not found", "unknown error", "[unknown error]", "[not supported]")
# What NVML answers for each value of a GPU that has fallen off the bus (nvmlErrorString of NVML_ERROR_GPU_IS_LOST)
GONE = ("gpu is lost", "[gpu is lost]")
LAST = "Processes"  # the last section of every version up to 560; newer ones have a few more after it


@dataclass(frozen=True)
class Gpu:
    """One GPU. `values`: "PCI/GPU Link Info/Link Width/Current" → "16x"."""

    bus: str
    values: dict[str, str] = field(default_factory=dict)

    @property
    def is_gone(self) -> bool:
        """Return whether the GPU no longer answers the driver."""
        return any(value.lower() in GONE for value in self.values.values())

    def value(self, *paths: str) -> str:
        """Return the value of the first of these keys that has one; "" for N/A."""
        for path in paths:
            found = self.values.get(path, "")
            if found.lower() not in UNKNOWN:
                return found
        return ""


@dataclass(frozen=True)
class SmiReport:
    """The answer of nvidia-smi. `attached`: the number of GPUs that it announces; `gpus`: those that answer; `gone`:
    buses of the others."""

    driver: str = ""
    cuda: str = ""
    attached: int = -1
    gpus: tuple[Gpu, ...] = ()
    gone: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        last = self.gpus[-1].values if self.gpus else {LAST: ""}
        return len(self.gpus) + len(self.gone) == self.attached and LAST in last


def parse_smi(text: str) -> SmiReport:
    """Return the GPUs of ``nvidia-smi -q``."""
    head: dict[str, str] = {}
    gpus: list[Gpu] = []
    above: list[tuple[int, str]] = []  # sections that are open: indentation, name
    for line in text.splitlines():
        if found := GPU.match(line):
            gpus.append(Gpu(found[1]))
            above = []
            continue
        parts = LINE.match(line.rstrip())
        if not parts or line.startswith(("[", "=")):
            continue
        indent, name, value = len(parts[1]), parts[2], parts[3]
        while above and above[-1][0] >= indent:
            above.pop()
        path = "/".join([*(section for _, section in above), name])
        values = gpus[-1].values if gpus else head
        values.setdefault(path, (value or "").strip())
        above.append((indent, name))
    attached = head.get("Attached GPUs", "")
    return SmiReport(
        head.get("Driver Version", ""), head.get("CUDA Version", ""), int(attached) if attached.isdigit() else -1,
        tuple(gpu for gpu in gpus if not gpu.is_gone), tuple(gpu.bus for gpu in gpus if gpu.is_gone),
    )  # fmt: skip
