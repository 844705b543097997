"""``nvidia-smi -q``: one section for each GPU, KEY : VALUE by indentation.

Versions 510 to 580 differ in their keys, so each value is searched by its section; lines of preloaded libraries
between them are left out. ``--query-gpu`` is not used: one unknown field of an older driver makes it fail as a
whole."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

SLOT = len("0000:1b:00.0")  # of a bus: in /sys the domain has four digits
GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
INFOROM = re.compile(r"WARNING: infoROM is corrupted at gpu (\S+)")  # the last lines, after all GPUs
LINE = re.compile(r"( *)(\S.*?)(?: +: ?(.*))?$")
UNKNOWN = ("", "n/a", "[n/a]", "not found", "unknown error", "[unknown error]", "[not supported]")
# What NVML answers in the place of a value (nvmlErrorString): of a GPU that has fallen off the bus, of one that
# requires a reset (for some of its values or all), and of one that hangs (for most)
FALLEN, RESET, HANGS = "GPU is lost", "GPU requires reset", "Unknown Error"
LAST = "Processes"  # the last section of every version up to 560; newer ones have a few more after it


@dataclass(frozen=True)
class Gpu:
    """One GPU. `values`: "PCI/GPU Link Info/Link Width/Current" → "16x"."""

    bus: str
    values: dict[str, str] = field(default_factory=dict)

    @property
    def fault(self) -> str:
        """Return why the GPU does not answer the driver: FALLEN, RESET or HANGS; "" if it does."""
        found = [value.strip("[]").lower() for value in self.values.values() if value]
        for fault in (FALLEN, RESET):
            if fault.lower() in found:
                return fault
        stated = [value for value in found if value not in UNKNOWN or value == HANGS.lower()]
        return HANGS if 2 * stated.count(HANGS.lower()) > len(stated) else ""

    def value(self, *paths: str) -> str:
        """Return the value of the first of these keys that has one; "" for N/A."""
        for path in paths:
            found = self.values.get(path, "")
            if found.lower() not in UNKNOWN:
                return found
        return ""


@dataclass(frozen=True)
class SmiReport:
    """The answer of nvidia-smi. `attached`: the number of GPUs that it announces; `gpus`: those that answer; `silent`:
    the others; `corrupted`: buses of those whose memory for settings and errors (infoROM) is corrupted."""

    driver: str = ""
    cuda: str = ""
    attached: int = -1
    gpus: tuple[Gpu, ...] = ()
    silent: tuple[Gpu, ...] = ()
    corrupted: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        last = self.gpus[-1].values if self.gpus else {LAST: ""}
        return len(self.gpus) + len(self.silent) == self.attached and LAST in last


def parse_smi(text: str, known: Collection[str] = ()) -> SmiReport:
    """Return the GPUs of ``nvidia-smi -q``. `known`: buses of GPUs that the machine has, in small letters.

    A user may name a process in any way, with any sign in it. So a line ends at "\\n" alone, what follows the
    processes of a GPU is left out, a heading counts for a known bus, and one that comes twice makes the report
    incomplete."""
    head: dict[str, str] = {}
    gpus: list[Gpu] = []
    above: list[tuple[int, str]] = []  # sections that are open: indentation, name
    for line in text.split("\n"):
        found = GPU.match(line)
        if found and (not known or found[1].lower()[-SLOT:] in known):
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
        if LAST in values:
            continue
        values.setdefault(path, (value or "").strip())
        above.append((indent, name))
    attached = head.get("Attached GPUs", "")
    return SmiReport(
        head.get("Driver Version", ""), head.get("CUDA Version", ""), int(attached) if attached.isdigit() else -1,
        tuple(gpu for gpu in gpus if not gpu.fault), tuple(gpu for gpu in gpus if gpu.fault),
        tuple(INFOROM.findall(text.rpartition("\n    ")[2])),
    )  # fmt: skip
