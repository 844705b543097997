"""All adapters of one model have the same firmware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..facts.network import EFA, rdma_ports
from ..host import Host
from ..model import ADMINISTRATOR, Need, Result, failed, not_run, passed

GROUP = "network"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the versions of each model."""
    kinds: dict[str, dict[str, str]] = {}
    for port in rdma_ports(host):
        if port.firmware and port.layer != EFA:
            kinds.setdefault(port.kind, {})[port.device] = port.firmware
    if not kinds:
        yield not_run("no adapter states a firmware")
        return
    for kind, devices in kinds.items():
        usual = Counter(devices.values()).most_common(1)[0][0]
        other = [f"{name} has {version}" for name, version in devices.items() if version != usual]
        if other:
            yield failed(
                f"{kind or 'adapters'}: firmware is {usual}, but {', '.join(other)}",
                ADMINISTRATOR,
                "mlxfwmanager -u -d DEVICE; then mlxfwreset -d DEVICE reset, or reboot",
            )
            return
    yield passed(", ".join(f"{kind or 'adapters'} {next(iter(devices.values()))}" for kind, devices in kinds.items()))
