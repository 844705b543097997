"""The error counters of the network ports do not grow while the doctor runs. Old values alone are not a failure."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..facts.network import counters, rdma_ports
from ..host import Host
from ..model import HARDWARE, Need, Result, failed, not_run, passed

GROUP = "network"
NAMES = {
    "counters": (
        "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_xmit_discards",
        "local_link_integrity_errors",
    ),
    "hw_counters": (
        "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "roce_adp_retrans",
    ),
}  # fmt: skip
PAUSE = 0.2  # seconds


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read the counters twice."""
    ports = [port for port in rdma_ports(host) if port.active]
    before = counters(host, ports, NAMES)
    if not before:
        yield not_run("no active port has counters" if ports else "there is no active port")
        return
    time.sleep(PAUSE)
    after = counters(host, ports, NAMES)
    grown = [f"{name} +{after[name] - value}" for name, value in before.items() if after.get(name, value) > value]
    old = [f"{name} {value}" for name, value in before.items() if value and "link_downed" in name]
    if grown:
        yield failed(
            f"growing within {PAUSE} s: {', '.join(grown[:8])}",
            HARDWARE,
            "check cable and transceiver: mlxlink -d DEVICE -c",
        )
    else:
        yield passed(
            f"none of {len(before)} counters grows" + (f"; since the boot: {', '.join(old[:4])}" if old else "")
        )
