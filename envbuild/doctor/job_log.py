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
from .model import FAIL, MINOR, USER, Need, Result, failed, not_run, one_line, passed
from .processes import FIRST_WORD, ignore
from .tools.kernel_log import Event, parse_kernel_log

NETWORK = re.compile(r"NCCL INFO Using network (\S.*)")
FAST = re.compile(r"IB|IBext|Libfabric|UCX|SHARP|NVLS|FasTrak|TCPX", re.IGNORECASE)  # the last two: Google Cloud
PROVIDER = re.compile(r"Selected provider is (\S+?),? [^()]*\(found (\d+) nics\)", re.IGNORECASE)
NODE = re.compile(
    r"^([\w.-]{1,64}):\d+:\d+ \[|Node failure on ([\w.-]{1,64})|^srun: error: ([\w.-]{1,64}): task|"
    r"^\w{3} [ \d]\d [\d:]{8} ([\w.-]{1,64}) kernel:"
)
DIRECT = re.compile(r"via (NET/[^/\s]+/\d+)\S*")
# of a communicator since NCCL 2.19, and before
SIZE = re.compile(r"nRanks (?P<ranks>\d+) nNodes (?P<nodes>\d+)|nranks (?P<all>\d+) .*localSize (?P<local>\d+)")
TRACEBACK = "Traceback (most recent call last)"
ERROR = re.compile(r"(?:^|[:\]] ?)(?P<text>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b:? ?.*)")
KNOWN = re.compile(
    r"NCCL (?:INFO|WARN)|UCX +(?:INFO|WARN|ERROR|DIAG)|\[UCC\]|ProcessGroupUCC|ProcessGroupNCCL|libfabric:|NET/OFI"
)
HINTS = ("plugin-missing", "nvls-missing", "ucx-tcp-alone", "pmix-gds", "no-device")  # lines of jobs that work, too
ENDS = ("task-ended", "cancelled")
CAUSES = ("image-", "container-", "registry-", "enroot-", "driver-too-old")  # of a container that did not start
LAST = 20  # lines: an exception that near to the end of a log ended the program
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
            yield line
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
            reading.events += parse_kernel_log(line)
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


def log_results(reading: LogReading, need: Need) -> list[Result]:
    """Return a result for each fault of the log, and one about the network."""
    found = [sign for sign in SIGNS if sign.name in reading.found and not is_overcome(sign, reading)]
    results = [sign_result(sign, reading.found[sign.name]) for sign in found]
    if reading.error[0]:
        results.append(error_result(reading))
    if event := worst_event(reading.events):
        results.append(replace(event, check="xid"))
    results.append(network_result(reading, need))
    if not reading.known and not reading.error[0] and not found:
        hint = "export NCCL_DEBUG=INFO UCX_LOG_LEVEL=info; run the job again"
        results = [
            *[result for result in results if result.status == FAIL],
            not_run(f"no line of NCCL, UCX, UCC or libfabric in {reading.lines} lines", hint),
        ]
    elif not reading.known:
        results = [result for result in results if result.status == FAIL]
    return [  # of the nodes that ran the job: they do not drain this one
        replace(one, detail=one_line(one.detail), check=one.check or "network", group="log", drains=False)
        for one in results
    ]


def is_overcome(sign: Sign, reading: LogReading) -> bool:
    """Return whether other lines show that a sign had no effect, as no device for a part of NCCL, and then InfiniBand;
    or what caused it: a container that did not start, and why."""
    if sign.name == "container-disk":  # the limit of namespaces has the same text of the system
        namespaces = reading.found.get("container-namespace", (0, 0, ""))[1]
        return namespaces >= reading.found[sign.name][1]
    if sign.name in ENDS:  # by what another sign or an exception names
        others = set(reading.found) - {*HINTS, *(ENDS if sign.name == ENDS[0] else ENDS[1:])}
        return bool(reading.error[0] or reading.events or others)
    if sign.name == "pyxis":
        return any(name.startswith(CAUSES) for name in reading.found)
    if sign.name in ("plugin-missing", "ucx-tcp-alone"):  # InfiniBand needs no plugin; UCX starts MPI, as of a launch
        return bool(reading.networks) and all(map(FAST.search, reading.networks))
    if sign.name == "no-device" and reading.sizes == {False}:  # nothing goes over the network
        return True
    return sign.name == "no-device" and bool(reading.networks) and all(map(FAST.search, reading.networks))


def error_result(reading: LogReading) -> Result:
    """Return the first exception of a program. One that ended no rank may have been handled."""
    number, text, node = reading.error
    where = f"{node}, line {number}" if node else f"line {number}"
    severity = USER if "task-ended" in reading.found or reading.lines - number < LAST else MINOR
    fix = "its traceback, in the lines before; other ranks that end later are the consequence"
    return replace(failed(f"an exception of a program: {text} ({where})", severity, fix), check="exception")


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
        if reading.sizes == {False}:
            return failed(f"NCCL would take TCP between nodes: {listed}; this job has one node", MINOR, check)
        fix = f"in the job's container: {check}; with NCCL_NET={wanted} the next job fails instead"
        return failed(f"NCCL fell back to TCP: {listed}", USER, fix)
    if slow and not need.source:
        hint = "name the target of the job: envbuild doctor TARGET --log FILE"
        return not_run(f"NCCL used TCP: {listed}; without a target it is not known whether that is right", hint)
    if reading.bounced and not reading.direct and not slow:
        fix = "modprobe nvidia-peermem (as root); envbuild doctor in the job's container"
        return failed(f"{listed}, without GPUDirect RDMA: data is copied through the host's memory", "minor", fix)
    if reading.bounced and not slow:
        number, all_paths = sum(reading.bounced.values()), sum(reading.bounced.values()) + reading.direct
        paths = ", ".join(sorted(reading.bounced))
        fix = "one half of a node: nvidia-smi topo -m; its adapters: envbuild doctor on the node"
        return failed(f"{listed}; {number} of {all_paths} channels without GPUDirect RDMA: {paths}", MINOR, fix)
    more = [", ".join(reading.providers), f"{reading.direct} channels with GPUDirect RDMA" if reading.direct else ""]
    return passed("; ".join([listed, *filter(None, more)]))
