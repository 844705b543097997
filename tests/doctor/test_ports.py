"""Ports of the network: those of the target beside others, states, firmware, and counters that grow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, MINOR, PASS, USER, Need
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit
STORAGE = "MT_0000000838"


def test_ports_of_another_layer_and_ports_that_are_switched_off(node: Node) -> None:
    node.write_port("mlx5_1", layer="Ethernet")
    result = result_of(node.examine(), "rdma-ports")
    assert "mlx5_1:1 is Ethernet" in result.detail and "LINK_TYPE_P1=1" in result.fix
    node.write_port("mlx5_1", state="1: DOWN", physical="3: Disabled")
    assert "ibportstate" in result_of(node.examine(), "rdma-ports").fix
    for name in ("mlx5_0", "mlx5_1"):
        node.write_port(name, layer="Ethernet", state="4: ACTIVE" if name == "mlx5_0" else "1: DOWN")
    result = result_of(node.examine(Need()), "rdma-ports")
    assert (result.severity, "mlx5_1:1 down" in result.detail) == (MINOR, True)


def test_adapters_of_storage_are_not_those_of_the_target(node: Node) -> None:
    node.write_port("mlx5_8", rate="200 Gb/sec (4X HDR)")
    node.write_port("mlx5_9", state="1: DOWN")
    result = result_of(node.examine(), "rdma-ports")
    assert result.status == PASS and "others: " in result.detail
    result = result_of(node.examine(Need()), "rdma-ports")
    assert (result.status, result.severity) == (FAIL, MINOR)


def test_an_adapter_without_its_driver_is_reported_without_a_target(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for name, text in (("class", "0x020700"), ("vendor", "0x15b3"), ("device", "0x1021")):
        node.write(f"sys/bus/pci/devices/0000:1a:00.0/{name}", text)
    result = result_of(node.examine(Need()), "rdma-ports")
    assert (result.status, result.severity, "modprobe mlx5_ib" in result.fix) == (FAIL, MINOR, True)


def test_a_port_that_is_down_is_not_replaced_by_one_of_storage(node: Node) -> None:
    """Ports of storage may have the rate and the layer of the others."""
    node.write_port("mlx5_8", board=STORAGE)
    assert result_of(node.examine(), "rdma-ports").status == PASS
    node.write_port("mlx5_1", state="1: DOWN", physical="2: Polling")
    result = result_of(node.examine(), "rdma-ports")
    assert (result.status, result.severity) == (FAIL, HARDWARE)
    assert result.detail.startswith("not active: mlx5_1:1 down polling") and "mlxlink -d mlx5_1" in result.fix


def test_a_further_port_that_is_down_is_minor(node: Node) -> None:
    """It may have no cable; ports of storage may be on the same kind of board."""
    node.write_port("mlx5_2", state="1: DOWN", physical="2: Polling")
    result = result_of(node.examine(), "rdma-ports")
    assert (result.status, result.severity) == (FAIL, MINOR)
    node.write_port("mlx5_2", state="1: DOWN", physical="2: Polling", board=STORAGE)
    assert result_of(node.examine(), "rdma-ports").status == PASS


def test_the_names_of_a_site_decide(node: Node) -> None:
    for name in ("mlx5_2", "mlx5_3"):
        node.write_port(name)
    node.write_port("mlx5_1", state="1: DOWN", physical="2: Polling")
    assert result_of(node.examine(), "rdma-ports").severity == MINOR
    result = result_of(node.examine(replace(NEED, names=("mlx5_0", "mlx5_1"))), "rdma-ports")
    assert (result.status, result.severity) == (FAIL, HARDWARE)


def test_the_bridges_to_nvlink_switches_are_no_ports_of_the_network(node: Node) -> None:
    """HGX B200 shows four, with firmware of their own."""
    node.write_port("mlx5_8", firmware="28.43.2566")
    node.write("sys/class/infiniband/mlx5_8/device/vpd", "NVSwitch LPF SW_MNG")
    assert result_of(node.examine(), "rdma-firmware").status == PASS
    node.write_port("mlx5_1", state="1: DOWN", physical="2: Polling")
    assert result_of(node.examine(), "rdma-ports").severity == HARDWARE


def test_adapters_of_another_board_have_other_firmware(node: Node) -> None:
    node.write_port("mlx5_8", firmware="28.39.3004", board=STORAGE)
    assert result_of(node.examine(), "rdma-firmware").status == PASS


@pytest.mark.parametrize("state", ["2: INIT", "3: ARMED"])
def test_a_fabric_without_its_subnet_manager_drains_no_node(state: str, node: Node) -> None:
    node.write_port("mlx5_0", state=state)
    assert result_of(node.examine(), "rdma-ports").drains
    node.write_port("mlx5_1", state=state)
    result = result_of(node.examine(), "rdma-ports")
    assert (result.severity, result.drains) == (ADMINISTRATOR, False)


@pytest.mark.parametrize(("need", "severity"), [(NEED, HARDWARE), (Need(), MINOR)])
def test_an_adapter_whose_driver_made_no_device_is_named(need: Need, severity: str, node: Node) -> None:
    for number, slot in enumerate(("0000:1a:00.0", "0000:4d:00.0")):
        for name, text in (("class", "0x020700"), ("vendor", "0x15b3"), ("device", "0x1021")):
            node.write(f"sys/bus/pci/devices/{slot}/{name}", text)
        node.write(f"sys/bus/pci/devices/{slot}/infiniband/mlx5_{number}/node_type", "1: CA")
    assert result_of(node.examine(need), "rdma-ports").status == PASS
    for path in ("sys/class/infiniband/mlx5_1", "sys/bus/pci/devices/0000:4d:00.0/infiniband"):
        (node.root / path).rename(node.root / f"gone-{Path(path).name}")
    result = result_of(node.examine(need), "rdma-ports")
    assert (result.status, result.severity, result.fix.split(";")[0]) == (FAIL, severity, "dmesg | grep 0000:4d:00.0")


@pytest.mark.parametrize(("counter", "numbers", "severity"), [
    ("counters/symbol_error", (9, 9), MINOR), ("counters/symbol_error", (900, 900), MINOR),
    ("counters/symbol_error", (900, 9000), HARDWARE), ("counters/port_rcv_errors", (1, 1), MINOR),
    ("counters/port_rcv_errors", (1, 4), HARDWARE), ("counters/port_xmit_discards", (100, 200), MINOR),
    ("hw_counters/out_of_sequence", (300, 600), MINOR), ("hw_counters/rnr_nak_retry_err", (1, 2), MINOR),
])  # fmt: skip
def test_a_counter_that_grows_again_is_of_the_link(
    counter: str, numbers: tuple[int, int], severity: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event makes no rate: rare ones of 1600 ports drained nodes each day."""
    path = f"sys/class/infiniband/mlx5_1/ports/1/{counter}"
    before = 7 if counter.endswith("symbol_error") else 0
    node.write(path, str(before))
    later = iter(numbers)
    pause = SimpleNamespace(sleep=lambda _: node.write(path, str(next(later))))  # of this check, not of those that wait
    monkeypatch.setattr("envbuild.doctor.checks.link_errors.time", pause)
    result = result_of(node.examine(), "link-errors")
    assert (result.status, result.severity) == (FAIL, severity)
    grown = numbers[1] - numbers[0] if severity == HARDWARE else numbers[0] - before
    assert result.detail.endswith(f"s: mlx5_1:1 {counter.partition('/')[2]} +{grown}")
    assert "mlxlink -d mlx5_1 -c" in result.fix


def test_a_login_node_has_the_ports_of_a_login_node(node: Node) -> None:
    (node.root / "proc/77/comm").unlink()
    result = result_of(node.examine(replace(NEED, nics=8)), "rdma-ports")
    assert (result.severity, result.fix) == (USER, "use a node of that target")
