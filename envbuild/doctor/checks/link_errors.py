"""The error counters of the network ports do not grow while the doctor runs. Old values alone are not a failure.

A link that is sick counts errors of its own. What a busy or distant part of the network causes is minor: packets out of
order belong to adaptive routing, discards to congestion, and time-outs to the other node."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..facts.kernel_messages import uptime
from ..facts.network import counters, rdma_ports
from ..host import Host
from ..model import HARDWARE, MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..ports import Port

GROUP = "network"
SYMBOLS = "symbol_error"
OF_LINK = ("link_error_recovery", "link_downed", "port_rcv_errors", "local_link_integrity_errors")
NAMES = {
    "counters": (SYMBOLS, *OF_LINK, "port_xmit_discards"),
    "hw_counters": (
        "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "roce_adp_retrans",
    ),
}  # fmt: skip
DOWNS = 5  # times that a link may go down in a day, over at least two days
PAUSE = 0.2  # seconds
AGAIN = 1.0  # seconds until the next look: one event makes no rate. Both are this program's own choice
# InfiniBand permits one wrong bit in 1e12: 0.08 in this time at 400 Gb/s. A hundred times that is a fault
MANY_SYMBOLS = 8


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read the counters twice."""
    ports = [port for port in rdma_ports(host) if port.active]
    before = counters(host, ports, NAMES)
    if not before:
        yield not_run("no active port has counters") if ports else not_applicable("there is no active port")
        return
    time.sleep(PAUSE)
    after = counters(host, ports, NAMES)
    grown = {name: after[name] - value for name, value in before.items() if after.get(name, value) > value}
    old = [f"{name} {value}" for name, value in before.items() if value and "link_downed" in name]
    sick = {name: number for name, number in grown.items() if is_of_link(name, number)}
    still = growing_again(host, ports, after, sick) if sick else {}
    if still:
        fix = f"check cable and transceiver: {asking(still)}"
        yield failed(f"growing again after {AGAIN:.0f} s: {listed(still)}", HARDWARE, fix)
    elif sick:
        fix = f"a single event; if it returns, cable and transceiver: {asking(sick)}"
        yield failed(f"grew once within {PAUSE} s: {listed(sick)}", MINOR, fix)
    elif grown:
        fix = f"a busy network, or another node; if they always grow on this node alone: {asking(grown)}"
        yield failed(f"growing within {PAUSE} s: {listed(grown)}", MINOR, fix)
    elif flapping := {name: number for name, number in downs(before).items() if number > most_downs(host)}:
        fix = f"a link that comes and goes: cable, transceiver or port of the switch: {asking(flapping)}"
        words = ", ".join(f"{name} {number}" for name, number in flapping.items())
        yield failed(f"more than {DOWNS} times a day since the boot: {words}", MINOR, fix)
    else:
        since = f"; since the boot: {', '.join(old[:4])}" if old else ""
        yield passed(f"none of {len(before)} counters grows{since}")


def growing_again(host: Host, ports: list[Port], before: dict[str, int], sick: dict[str, int]) -> dict[str, int]:
    """Return the counters of sick links that grow in a second time, too. A sick link has many errors: its packets are
    wrong all the time, and each is counted."""
    time.sleep(AGAIN)
    after = counters(host, ports, NAMES)
    grown = {name: after.get(name, 0) - before[name] for name in sick}
    return {name: number for name, number in grown.items() if is_of_link(name, number)}


def downs(values: dict[str, int]) -> dict[str, int]:
    """Return how often links went down."""
    return {name: number for name, number in values.items() if name.endswith(" link_downed")}


def most_downs(host: Host) -> float:
    """Return how often a link may have gone down since the boot; that of the boot and repairs are among them."""
    return DOWNS * max(uptime(host) / 86400, 2)


def is_of_link(name: str, number: int) -> bool:
    """Return whether the growth of a counter is a fault of the link itself."""
    kind = name.rpartition(" ")[2]
    return (kind in OF_LINK and number > 0) or (kind == SYMBOLS and number >= MANY_SYMBOLS)


def asking(grown: dict[str, int]) -> str:
    """Return the commands that read the state of the links."""
    devices = list(dict.fromkeys(name.partition(":")[0] for name in grown))
    return "; ".join(f"mlxlink -d {device} -c" for device in devices[:8])


def listed(grown: dict[str, int]) -> str:
    """Return counters with their growth."""
    return ", ".join(f"{name} +{number}" for name, number in list(grown.items())[:8])
