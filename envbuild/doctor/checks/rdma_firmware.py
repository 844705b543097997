"""All adapters of one board have the same firmware; others have firmware of their own. Different ones work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..facts.network import EFA, rdma_ports
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_applicable, passed

GROUP = "network"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the versions of each model and board."""
    kinds: dict[tuple[str, str], dict[str, str]] = {}
    for port in rdma_ports(host):
        if port.firmware and port.layer != EFA:
            kinds.setdefault((port.kind, port.board), {})[port.device] = port.firmware
    if not kinds:
        yield not_applicable("no adapter states a firmware")
        return
    for (kind, board), devices in kinds.items():
        usual = Counter(devices.values()).most_common(1)[0][0]
        other = {name: version for name, version in devices.items() if version != usual}
        if other:
            name = f"{kind or 'adapters'} {board}".strip()
            listed = ", ".join(f"{device} has {version}" for device, version in other.items())
            device = next(iter(other))
            fix = f"mlxfwmanager -u -d {device}; without jobs: mlxfwreset -d {device} reset, or reboot"
            yield failed(f"{name}: firmware is {usual}, but {listed}", MINOR, fix)
            return
    yield passed(", ".join(f"{kind or 'adapters'} {next(iter(found.values()))}" for (kind, _), found in kinds.items()))
