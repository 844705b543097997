"""The kernel's log: XID events of NVIDIA GPUs and SXID events of NVSwitches.

What a number means, and what it needs, is from NVIDIA's catalogue of XIDs (release 590) as AWS' health check of its
accelerated instances classes it; those of memory (63, 64, 92, 94, 95) from NVIDIA's "GPU Memory Error Management".
The driver writes an SXID as several records, and whether it is fatal in the first alone ("Severity …" and "Data {…}"
follow: NVIDIA/open-gpu-kernel-modules, error_nvswitch.c). XIDs of NVLink 5 name it before the link."""

from __future__ import annotations

import re
from typing import NamedTuple

# A record begins with the words of the driver: a user can have any text in the middle of one, by the option of a
# mount that fails. Before them: what /dev/kmsg, dmesg (also with --time-format) and journalctl write.
BEFORE = (  # srun --label writes "0: ", dmesg -x "kern  :err   : "
    r"^(?:\d+: )?(?:kern +:\w+ *: )?"
    r"(?:\d+,\d+,\d+,[^;]*;|\[[^\]]*\]\s*|(?:\w{3} [ \d]\d [\d:]{8}|\d{4}-\S+) (?:\S+ kernel: )?(?:\[[^\]]*\] )?)?"
)
XID = re.compile(
    BEFORE + r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)(?: (?P<part>GPU-I:\w+))?\): (?P<number>\d+),? ?(?P<text>.*)"
)
SXID = re.compile(
    BEFORE + r"nvidia-nvswitch\S* SXid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<number>\d+),? ?(?P<text>.*)"
)
REBOOT = (79, 151, 168)
# Of the catalogue (reset as the immediate action), and critical for AWS' node monitoring agent for EKS
POWER = (54,)  # a power cable is not connected
RESET = (46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158)
NVLINK5 = tuple(range(144, 151))
NVLINK = (74, *NVLINK5)
SEVERITY = re.compile(r"\b(Fatal|Nonfatal) \w+ i\d+ Link\b")  # the last one counts: a process has any name before it
DETAIL = ("severity ", "data {")  # of the event before
MEMORY = (63, 92, 94)  # recorded, many corrected, or contained: the GPU works; its counters state what it needs
APPLICATION = (13, 31, 43, 45)  # a program's fault, or the end of a program after another event
# The driver's advice, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)": the last words count
RECOVERY = 154
ADVICE = (("reboot", "reboot"), ("reset", "reset"), ("drain p2p", "drain"), ("none", "recovered"))
LOADED = re.compile(BEFORE + r"NVRM: loading NVIDIA UNIX ")  # of the kernel module, which initialises its GPUs
DONE = re.compile(BEFORE + r"envbuild-doctor: reset (?P<buses>[0-9a-fA-F:.,]+)")
SINCE_BOOT = re.compile(r"^\d+,\d+,(\d+),[^;]*;")  # of /dev/kmsg: microseconds


class Event(NamedTuple):
    """An event. `switch`: of an NVSwitch; `after`: seconds since the start of the machine, -1 where the log has another
    time; `node`: the one that the line of a job's log names."""

    bus: str
    number: int
    text: str
    switch: bool = False
    after: float = -1.0
    node: str = ""

    @property
    def action(self) -> str:
        """reboot, reset, power, drain, nvlink, link (which works), memory, application, recovered, or "unknown" for
        numbers without a class."""
        if self.switch:  # the record itself states whether the switch works
            words = self.text.lower()
            return "nvlink" if words.startswith("fatal") else "link" if words.startswith("non-fatal") else "unknown"
        if self.number in NVLINK5 and SEVERITY.findall(self.text)[-1:] == ["Nonfatal"]:
            return "link"
        if self.number == RECOVERY:
            advice = self.text.rpartition(" to ")[2].lower()
            return next((kind for word, kind in ADVICE if word in advice), "unknown")
        named = (
            ("reboot", REBOOT), ("reset", RESET), ("nvlink", NVLINK), ("power", POWER), ("memory", MEMORY),
            ("application", APPLICATION),
        )  # fmt: skip
        return next((name for name, numbers in named if self.number in numbers), "unknown")


def parse_kernel_log(text: str) -> list[Event]:
    """Return the events in their order. A record ends at a line feed alone: texts of users may have other ends."""
    events = []
    for line in text.split("\n"):
        found = XID.search(line) or SXID.search(line)
        if found:
            number, switch, time = int(found["number"]), "SXid" in line, SINCE_BOOT.match(line)
            after = int(time[1]) / 1e6 if time else -1.0
            if switch and found["text"].lower().startswith(DETAIL):
                continue
            events.append(Event(found["bus"].lower(), number, found["text"].strip()[:200], switch, after))
    return events


def current_events(text: str) -> tuple[list[Event], list[Event]]:
    """Return the events of this machine's log that may still count, and those before the driver was loaded again or,
    by a line of the administrator (root alone writes to /dev/kmsg), before their GPU was reset."""
    left: list[Event] = []
    over: list[Event] = []
    for line in text.split("\n"):
        done = DONE.search(line)
        if LOADED.search(line):
            over += [event for event in left if not event.switch]
            left = [event for event in left if event.switch]
        elif done:
            buses = tuple(done["buses"].lower().split(","))
            over += [event for event in left if is_of(event, buses)]
            left = [event for event in left if not is_of(event, buses)]
        elif "Xid" in line or "SXid" in line:
            left += parse_kernel_log(line)
    return left, over


def is_of(event: Event, buses: tuple[str, ...]) -> bool:
    """Return whether an event is of one of these GPUs or switches: 0000:52:00 or 0000:52:00.0."""
    return any(bus.startswith(event.bus) for bus in buses)
