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
from dataclasses import dataclass, field, replace
from typing import IO

from .checks.xid import worst_event
from .log_signs import SIGNS, Sign
from .model import FAIL, USER, Need, Result, failed, not_run, one_line, passed
from .processes import FIRST_WORD, ignore
from .tools.kernel_log import Event, parse_kernel_log

NETWORK = re.compile(r"NCCL INFO Using network (\S.*)")
FAST = re.compile(r"IB|IBext|Libfabric|UCX|SHARP|NVLS", re.IGNORECASE)
PROVIDER = re.compile(r"Selected provider is (\S+?),? [^()]*\(found (\d+) nics\)", re.IGNORECASE)
NODE = re.compile(
    r"^([\w.-]{1,64}):\d+:\d+ \[|Node failure on ([\w.-]{1,64})|^srun: error: ([\w.-]{1,64}): task|"
    r"^\w{3} [ \d]\d [\d:]{8} ([\w.-]{1,64}) kernel:"
)
DIRECT = re.compile(r"via NET/\S+")
KNOWN = re.compile(
    r"NCCL (?:INFO|WARN)|UCX +(?:INFO|WARN|ERROR|DIAG)|\[UCC\]|ProcessGroupUCC|ProcessGroupNCCL|libfabric:|NET/OFI"
)
CAUSES = ("image-", "container-", "registry-", "enroot-", "driver-too-old")  # of a container that did not start
LONGEST = 4000  # characters of a line that are searched
OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO is opened without a writer
NEXT_WORD = 10.0  # seconds between two reports about a long log
STANDARD_INPUT = "-"  # in the place of a file
MOST_EVENTS, MOST_NAMES = 10_000, 100


@dataclass
class LogReading:
    """The content of a log. `known`: lines of the libraries; `informed`: those of NCCL with NCCL_DEBUG=INFO; `found`:
    sign → (its first line, the number of its lines, the node that the first one names, or ""); `networks`: network of
    NCCL → number of lines; `events`: of GPUs, in lines of the kernel."""

    lines: int = 0
    known: int = 0
    informed: int = 0
    found: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    networks: Counter[str] = field(default_factory=Counter)
    providers: Counter[str] = field(default_factory=Counter)
    direct: int = 0
    bounced: int = 0
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
            yield line
        at_start = line.endswith("\n")


def read_log(lines: Iterable[str]) -> LogReading:
    """Read a log line by line."""
    reading = LogReading()
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
            reading.events += parse_kernel_log(line)
        if network := NETWORK.search(line):
            count_name(reading.networks, network[1].rstrip())
        if provider := PROVIDER.search(line):
            count_name(reading.providers, f"{provider[1]}, {provider[2]} devices")
        if path := DIRECT.search(line):
            is_direct = "GDRDMA" in path[0]
            reading.direct += is_direct
            reading.bounced += not is_direct
    return reading


def node_of(line: str) -> str:
    """Return the node that a line of NCCL, Slurm or syslog names, or ""."""
    found = NODE.search(line)
    return next(filter(None, found.groups()), "") if found else ""


def count_name(names: Counter[str], name: str) -> None:
    """Count a name: of a log of any content, the first ones."""
    if name in names or len(names) < MOST_NAMES:
        names[name] += 1


def log_results(reading: LogReading, need: Need) -> list[Result]:
    """Return a result for each fault of the log, and one about the network."""
    found = [sign for sign in SIGNS if sign.name in reading.found and not is_overcome(sign, reading)]
    results = [sign_result(sign, reading.found[sign.name]) for sign in found]
    if event := worst_event(reading.events):
        results.append(replace(event, check="xid"))
    results.append(network_result(reading, need))
    if not reading.known:
        hint = "export NCCL_DEBUG=INFO UCX_LOG_LEVEL=info; run the job again"
        results = [
            *[result for result in results if result.status == FAIL],
            not_run(f"no line of NCCL, UCX, UCC or libfabric in {reading.lines} lines", hint),
        ]
    return [  # of the nodes that ran the job: they do not drain this one
        replace(one, detail=one_line(one.detail), check=one.check or "network", group="log", drains=False)
        for one in results
    ]


def is_overcome(sign: Sign, reading: LogReading) -> bool:
    """Return whether other lines show that a sign had no effect, as no device for a part of NCCL, and then InfiniBand;
    or what caused it: a container that did not start, and why."""
    if sign.name == "pyxis":
        return any(name.startswith(CAUSES) for name in reading.found)
    if sign.name in ("plugin-missing", "ucx-tcp-alone"):  # InfiniBand needs no plugin; UCX starts MPI, as of a launch
        return bool(reading.networks) and all(map(FAST.search, reading.networks))
    return sign.name == "no-device" and bool(reading.networks) and all(map(FAST.search, reading.networks))


def sign_result(sign: Sign, lines: tuple[int, int, str]) -> Result:
    """Return the failure of one sign; `lines`: its first line, their number, and the node of the first."""
    first, count, node = lines
    times = (f"{node}, " if node else "") + f"line {first}" + (f" and {count - 1} more" if count > 1 else "")
    return Result(FAIL, f"{sign.meaning} ({times})", sign.severity, sign.fix, sign.name)


def network_result(reading: LogReading, need: Need) -> Result:
    """Return which network NCCL used, and whether that is a fall-back to TCP."""
    if not reading.networks:
        if reading.informed:
            return not_run("NCCL ended before it chose a network")
        return not_run("NCCL does not state its network in the log", "export NCCL_DEBUG=INFO; run the job again")
    listed = ", ".join(f"{name} ({number})" for name, number in reading.networks.most_common())
    slow = [name for name in reading.networks if not FAST.search(name)]
    fabric = need.fabric in ("infiniband", "efa")
    if len(reading.networks) > 1:
        return failed(
            f"ranks use different networks: {listed}", USER, "set NCCL_NET for all ranks, and start them in one image"
        )
    if slow and (fabric or "no-device" in reading.found):
        wanted = {"efa": "Libfabric"}.get(need.fabric, "IB")
        check = f"envbuild doctor {need.source}".rstrip()
        fix = f"in the job's container: {check}; with NCCL_NET={wanted} the next job fails instead"
        return failed(f"NCCL fell back to TCP: {listed}", USER, fix)
    if slow and not need.source:
        hint = "name the target of the job: envbuild doctor TARGET --log FILE"
        return not_run(f"NCCL used TCP: {listed}; without a target it is not known whether that is right", hint)
    if reading.bounced and not reading.direct and not slow:
        fix = "modprobe nvidia-peermem (as root); envbuild doctor in the job's container"
        return failed(f"{listed}, without GPUDirect RDMA: data is copied through the host's memory", "minor", fix)
    more = [", ".join(reading.providers), f"{reading.direct} channels with GPUDirect RDMA" if reading.direct else ""]
    return passed("; ".join([listed, *filter(None, more)]))
