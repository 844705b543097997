"""The log of a job: lines of NCCL, UCX, libfabric, torch, Slurm and the kernel that state a fault, or the network that
was really used."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO

from .log_signs import SIGNS
from .processes import FIRST_WORD, ignore
from .tools.kernel_log import Event, parse_kernel_log

NETWORK = re.compile(r"NCCL INFO Using network (\S.*)")
PROVIDER = re.compile(r"Selected provider is (\S+?),? [^()]*\(found (\d+) nics\)", re.IGNORECASE)
NODE = re.compile(
    r"^([\w.-]{1,64}):\d+:\d+ \[|Node failure on ([\w.-]{1,64})|^srun: error: ([\w.-]{1,64}): task|"
    r"^\w{3} [ \d]\d [\d:]{8} ([\w.-]{1,64}) kernel:"
)
DIRECT = re.compile(r"via (NET/[^/\s]+/\d+)\S*")
CUT = re.compile(r"via NET/\S*$")  # at the end of a log that was cut: the rest of the path decides
# of a communicator since NCCL 2.19, and before
SIZE = re.compile(r"nRanks (?P<ranks>\d+) nNodes (?P<nodes>\d+)|nranks (?P<all>\d+) .*localSize (?P<local>\d+)")
TRACEBACK = "Traceback (most recent call last)"
ERROR = re.compile(r"(?:^|[:\]] ?)(?P<text>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b:? ?.*)")
KNOWN = re.compile(
    r"NCCL (?:INFO|WARN)|UCX +(?:INFO|WARN|ERROR|DIAG)|\[UCC\]|ProcessGroupUCC|ProcessGroupNCCL|libfabric:|NET/OFI"
)
LONGEST = 4000  # characters of a line that are searched
OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO is opened without a writer
NEXT_WORD = 10.0  # seconds between two reports about a long log
STANDARD_INPUT = "-"  # in the place of a file
MOST_EVENTS, MOST_NAMES = 10_000, 100


@dataclass
class LogReading:
    """The content of a log. `known`: lines of the libraries; `informed`: those of NCCL with NCCL_DEBUG=INFO; `found`:
    sign → (its first line, the number of its lines, the node that the first one names, or ""); `networks`: network of
    NCCL → number of lines; `direct`, `bounced`: lines of paths with and without GPUDirect; `sizes`: whether
    communicators have several nodes; `error`: the line of the first exception, its text and node; `events`: of GPUs, in
    lines of the kernel."""

    lines: int = 0
    known: int = 0
    informed: int = 0
    found: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    networks: Counter[str] = field(default_factory=Counter)
    providers: Counter[str] = field(default_factory=Counter)
    direct: int = 0
    bounced: Counter[str] = field(default_factory=Counter)
    sizes: set[bool] = field(default_factory=set)
    error: tuple[int, str, str] = (0, "", "")
    events: list[Event] = field(default_factory=list)


def read_log_file(path: str, notice: Callable[[str], object] = ignore) -> LogReading:
    """Read the log in a file, or standard input ("-"). `notice` receives a line about a long one. Raises OSError, also
    for a FIFO or a device, which may have no end."""
    if path == STANDARD_INPUT:
        with open(os.dup(sys.stdin.fileno()), encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return read_log(bounded_lines(file, "standard input", notice))
    with os.fdopen(os.open(path, OPEN), encoding="utf-8", errors="replace") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return read_log(bounded_lines(file, path, notice))


def bounded_lines(file: IO[str], path: str = "", notice: Callable[[str], object] = ignore) -> Iterator[str]:
    """Yield the lines of a log, the first characters of each: a line may be as long as the file. Report from time to
    time how many there were."""
    due, reads, lines = time.monotonic() + FIRST_WORD, 0, 0
    at_start = True
    while line := file.readline(LONGEST):
        reads += 1
        lines += at_start
        if reads % 1000 == 0 and time.monotonic() >= due:
            notice(f"reading {path}: {lines} lines so far")
            due = time.monotonic() + NEXT_WORD
        if at_start:
            yield line if line.endswith("\n") or len(line) == LONGEST else CUT.sub("", line)
        at_start = line.endswith("\n")


def read_log(lines: Iterable[str]) -> LogReading:
    """Read a log line by line."""
    reading, is_open = LogReading(), False
    for number, line in enumerate(lines, 1):
        reading.lines = number
        reading.known += bool(KNOWN.search(line))
        reading.informed += "NCCL INFO" in line
        small = line.lower()
        for sign in SIGNS:
            if sign.is_in(small):
                first, count, node = reading.found.get(sign.name) or (number, 0, node_of(line))
                reading.found[sign.name] = first, count + 1, node
        if "Xid" in line and len(reading.events) < MOST_EVENTS:
            reading.events += [event._replace(node=node_of(line)) for event in parse_kernel_log(line)]
        if network := NETWORK.search(line):
            count_name(reading.networks, network[1].rstrip())
        if provider := PROVIDER.search(line):
            count_name(reading.providers, f"{provider[1]}, {provider[2]} devices")
        if path := DIRECT.search(line):
            if "GDRDMA" in path[0]:
                reading.direct += 1
            else:
                count_name(reading.bounced, path[1])
        if "anks " in line and (size := SIZE.search(line[:500])):
            reading.sizes.add(int(size["nodes"] or 1) > 1 or size["all"] != size["local"])
        is_open = is_open or TRACEBACK in line
        if is_open and not reading.error[0] and (error := ERROR.search(line[:500])):
            reading.error = number, error["text"].strip()[:200], node_of(line)
    return reading


def node_of(line: str) -> str:
    """Return the node that a line of NCCL, Slurm or syslog names, or ""."""
    found = NODE.search(line)
    return next(filter(None, found.groups()), "") if found else ""


def count_name(names: Counter[str], name: str) -> None:
    """Count a name: of a log of any content, the first ones."""
    if name in names or len(names) < MOST_NAMES:
        names[name] += 1
