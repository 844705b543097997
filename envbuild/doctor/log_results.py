"""The results of the log of a job: a result for each fault, and one about the network that NCCL used."""

from __future__ import annotations

import re
from dataclasses import replace

from .checks.xid import worst_event
from .job_log import LogReading
from .log_fabric import ETHERNET, NAME_TARGET, direct_command, forced_network, sign_on_fabric
from .log_signs import SIGNS, Sign
from .model import ADMINISTRATOR, FAIL, MINOR, USER, Need, Result, failed, not_run, one_line, passed

FAST = re.compile(r"IB|IBext|Libfabric|UCX|SHARP|NVLS|FasTrak|TCPX", re.IGNORECASE)  # the last two: Google Cloud
HINTS = ("plugin-missing", "nvls-missing", "ucx-tcp-alone", "pmix-gds", "no-device")  # lines of jobs that work, too
ENDS = ("task-ended", "cancelled")
CAUSES = ("image-", "container-", "registry-", "enroot-", "driver-too-old")  # of a container that did not start
NEAR_END = 20  # lines: an exception that near to the end of a log ended the program


def log_results(reading: LogReading, need: Need) -> list[Result]:
    """Return a result for each fault of the log, and one about the network."""
    present = [sign for sign in SIGNS if sign.name in reading.found and not is_overcome(sign, reading)]
    found = [sign for one in present if (sign := sign_on_fabric(one, need))]
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
    severity = USER if "task-ended" in reading.found or reading.lines - number < NEAR_END else MINOR
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
            return not_run("the log ends before NCCL states its network")
        return not_run("NCCL does not state its network in the log", "export NCCL_DEBUG=INFO; run the job again")
    listed = ", ".join(f"{name} ({number})" for name, number in reading.networks.most_common())
    slow = [name for name in reading.networks if not FAST.search(name)]
    fabric = need.fabric in ("infiniband", "efa")
    if len(reading.networks) > 1:
        return failed(
            f"ranks use different networks: {listed}", USER, "set NCCL_NET for all ranks, and start them in one image"
        )
    if slow and (fabric or ("no-device" in reading.found and need.fabric != ETHERNET)):
        check = f"envbuild doctor {need.source}".rstrip()
        if reading.sizes == {False}:
            return failed(f"NCCL would take TCP between nodes: {listed}; this job has one node", MINOR, check)
        fix = f"in the job's container: {check}; with {forced_network(need)} the next job fails instead"
        return failed(f"NCCL fell back to TCP: {listed}", USER, fix)
    if slow and not need.source:
        hint = f"name the target of the job: {NAME_TARGET}"
        return not_run(f"NCCL used TCP: {listed}; without a target it is not known whether that is right", hint)
    if reading.bounced and not reading.direct and not slow:
        fix = f"on the node: envbuild doctor {need.source}".rstrip() + f"; {direct_command(need)}"
        severity = ADMINISTRATOR if fabric and need.nvidia else MINOR  # as the check of such a node
        return failed(f"{listed}, without GPUDirect RDMA: data is copied through the host's memory", severity, fix)
    if reading.bounced and not slow:
        number, all_paths = sum(reading.bounced.values()), sum(reading.bounced.values()) + reading.direct
        paths = ", ".join(sorted(reading.bounced))
        fix = "one half of a node: nvidia-smi topo -m; its adapters: envbuild doctor on the node"
        return failed(f"{listed}; {number} of {all_paths} channels without GPUDirect RDMA: {paths}", MINOR, fix)
    more = [", ".join(reading.providers), f"{reading.direct} channels with GPUDirect RDMA" if reading.direct else ""]
    return passed("; ".join([listed, *filter(None, more)]))
