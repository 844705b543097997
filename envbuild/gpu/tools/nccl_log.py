"""NCCL's log of one process (``NCCL_DEBUG=INFO``, one file a process): the transport that was really used.

Lines: NVIDIA/nccl v2.16.5 to v2.30.7 (src/init.cc, net.cc, transport/*.cc), aws/aws-ofi-nccl v1.4.0 to v1.21.1. Names
are compared without case. A log is whole when each communicator that was made is also closed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from ...doctor.log_signs import SIGNS
from .labels import unlabelled_lines

Item = TypeVar("Item")
NETWORK = re.compile(r"NCCL INFO Using network (.+?)\s*$")
DEVICES = re.compile(r"NET/(?:IB|RoCE) : Using (.*?)(?:; OOB|$)")
ONE_DEVICE = re.compile(r"\[(\d+)\]=?(\{[^}]*\}|\S+)")
PROVIDER = re.compile(r"NET/OFI Selected provider is ([^\s,]+),?(?: fabric is (\S+))? .*?\(found (\d+) nics\)", re.I)
CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : .* via (\S+)")
CLIQUE = re.compile(r"MNNVL \d+ cliqueId \S+ cliqueSize (\d+)")
MADE = re.compile(r"NCCL INFO ncclCommInit\w* comm (0x[0-9a-f]+) .*- Init COMPLETE")
CLOSED = re.compile(r"NCCL INFO comm (0x[0-9a-f]+) .*- (?:Destroy|Abort) COMPLETE")
VERSION = re.compile(r"NCCL version (\d[\w.+]*)")
NO_NETWORK = re.compile(r"Error: network .+ not found|Failed to initialize any NET plugin", re.I)


@dataclass(frozen=True)
class NcclLog:
    """The transport of one process. `channels`: kind of a path (NET/GDRDMA, NET, P2P, MNNVL, SHM) and how many.

    `made`, `closed`: communicators. `devices`: those of InfiniBand or RoCE that NCCL uses; merged ports are one.
    `no_network`: the network of NCCL_NET is missing. `signs`: known faults, by name.
    """

    networks: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    providers: tuple[tuple[str, int], ...] = ()
    channels: tuple[tuple[str, int], ...] = ()
    cliques: tuple[int, ...] = ()
    made: int = 0
    closed: int = 0
    no_network: bool = False
    version: str = ""
    signs: tuple[str, ...] = ()

    @property
    def fault(self) -> str:
        """Return why the log proves nothing, or ""."""
        if not self.networks:
            return "incomplete: no line 'Using network'"
        if not self.made:
            return "incomplete: no communicator was made"
        if self.closed < self.made:
            return f"incomplete: {self.made} communicators were made, and {self.closed} were closed"
        return ""


def parse_nccl_log(text: str) -> NcclLog:
    """Return the transport that a log states, as far as it goes."""
    networks: list[str] = []
    devices: list[str] = []
    providers: list[tuple[str, int]] = []
    channels: Counter[str] = Counter()
    cliques: set[int] = set()
    made: set[str] = set()
    closed: set[str] = set()
    no_network, version = False, ""
    signs: set[str] = set()
    for line in unlabelled_lines(text):
        signs.update(sign.name for sign in SIGNS if sign.is_in(line.lower()))
        no_network = no_network or bool(NO_NETWORK.search(line))
        if found := NETWORK.search(line):
            networks.append(found[1])
        elif found := DEVICES.search(line):
            devices += [name for _, name in ONE_DEVICE.findall(found[1])]
        elif found := PROVIDER.search(line):
            providers.append((found[2] or found[1], int(found[3])))
        elif found := CHANNEL.search(line):
            channels[channel_kind(found[1])] += 1
        elif found := CLIQUE.search(line):
            cliques.add(int(found[1]))
        elif found := MADE.search(line):
            made.add(found[1])
        elif found := CLOSED.search(line):
            closed.add(found[1])
        elif found := VERSION.search(line):
            version = found[1]
    return NcclLog(
        unique(networks), unique(devices), unique(providers), tuple(sorted(channels.items())), tuple(sorted(cliques)),
        len(made), len(closed & made), no_network, version, tuple(sorted(signs)),
    )  # fmt: skip


def channel_kind(path: str) -> str:
    """Return the kind of a path: ``NET/IB/0(p)/GDRDMA/Shared`` is NET/GDRDMA."""
    first = path.partition("/")[0]
    if first == "NET":
        return "NET/GDRDMA" if "/GDRDMA" in path else "NET"
    return "MNNVL" if "MNNVL" in path else first


def unique(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return items in their order, each once."""
    return tuple(dict.fromkeys(items))
