"""The port of the Neuron runtime is reserved: otherwise the kernel may use it for another connection of the node."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.cpu import read_cpus
from ..facts.neuron import neuron_devices
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_applicable, not_run, passed

GROUP = "Neuron"
PORT = 48620
FILE = "/proc/sys/net/ipv4/ip_local_reserved_ports"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Search the port among the reserved ones."""
    if not need.neuron and not neuron_devices(host):
        yield not_applicable("there is no Neuron device")
    elif host.read(FILE).fault:
        yield not_run(f"{FILE}: {host.read(FILE).fault}")
    elif PORT not in read_cpus(host.text(FILE)):
        ports = ",".join(filter(None, (host.text(FILE), str(PORT))))
        fix = f"as root: sysctl -w net.ipv4.ip_local_reserved_ports={ports}; the same in /etc/sysctl.d/neuron.conf"
        yield failed(f"port {PORT} is not reserved", MINOR, fix)
    else:
        yield passed(f"port {PORT} is reserved")
