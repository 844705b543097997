"""The verdict about the transport of a job, from the log of each process: what was forced must have been used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from .model import Job
from .tools.nccl_log import NcclLog

NET, DIRECT, SHM, PEER, DOMAIN = "NET", "NET/GDRDMA", "SHM", "P2P", "MNNVL"
PORT = re.compile(r":\d+/")  # a merged device lists several ports
FABRICS = ("infiniband", "efa")


def port_count(log: NcclLog) -> int:
    """Return the number of ports of InfiniBand or RoCE that a process uses."""
    return sum(len(PORT.findall(device)) for device in log.devices)


def transport_facts(logs: Sequence[NcclLog]) -> dict[str, Any]:
    """Return what the logs state, for the evidence: networks, ports, providers, paths, cliques, signs of faults."""
    networks = Counter(name for log in logs for name in log.networks)
    channels: Counter[str] = Counter()
    for log in logs:
        channels.update(dict(log.channels))
    facts = {
        "processes": len(logs),
        "networks": dict(sorted(networks.items())),
        "ports": sorted({port_count(log) for log in logs} - {0}),
        "providers": sorted({f"{name} ({count} devices)" for log in logs for name, count in log.providers}),
        "paths": dict(sorted(channels.items())),
        "cliques": sorted({size for log in logs for size in log.cliques}),
        "nccl": sorted({log.version for log in logs} - {""}),
        "signs": sorted({sign for log in logs for sign in log.signs}),
    }
    return {key: value for key, value in facts.items() if value}


def transport_faults(logs: Sequence[NcclLog], job: Job, ranks: int, *, nodes: int, net: str = "") -> list[str]:
    """Return why the transport is not the one that the job must use; none where it is.

    ranks: each has one log. nodes: more than one must use the fabric. net: the network that was forced; empty: the
    job's. Names are compared without case. A log that is incomplete proves nothing.
    """
    wanted = net or job.net
    faults = []
    if len(logs) != ranks:
        faults.append(f"{len(logs)} logs of NCCL for {ranks} ranks")
    faults += [f"the log of a rank is {fault}" for fault in sorted({log.fault for log in logs} - {""})]
    networks = sorted({name for log in logs for name in log.networks})
    if wanted and any(name.lower() != wanted.lower() for name in networks):
        faults.append(f"NCCL used network {', '.join(networks)}, and {wanted} was forced")
    elif len({name.lower() for name in networks}) > 1:
        faults.append(f"ranks used different networks: {', '.join(networks)}")
    if nodes > 1:
        faults += fabric_faults(logs, job)
    paths = transport_facts(logs).get("paths", {})
    if paths.get(SHM) and paths.get(PEER):
        faults.append(f"{paths[SHM]} paths between GPUs of a node go through host memory (SHM), the others do not")
    return faults


def fabric_faults(logs: Sequence[NcclLog], job: Job) -> list[str]:
    """Return what is missing of the devices of a fabric, and of the direct paths between them and the GPUs."""
    faults = []
    paths = transport_facts(logs).get("paths", {})
    if not any(paths.get(kind) for kind in (NET, DIRECT, DOMAIN)):  # nodes of one NVLink domain need no network
        faults.append("no log has a path over the network")
    if job.fabric not in FABRICS:
        return faults
    if paths.get(NET):
        faults.append(f"{paths[NET]} paths over the network without GPUDirect RDMA: data is copied through host memory")
    if job.fabric == "infiniband" and job.nics:
        counts = sorted({port_count(log) for log in logs})
        if counts != [job.nics]:
            faults.append(f"ranks use {', '.join(map(str, counts))} ports, and a node has {job.nics}")
    if job.fabric == "efa" and job.efa:
        found = sorted({count for log in logs for _, count in log.providers})
        if found != [job.efa]:
            faults.append(f"ranks use {', '.join(map(str, found)) or 'no'} EFA devices, and a node has {job.efa}")
    return faults
