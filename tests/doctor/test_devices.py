"""Devices of AWS (EFA, Neuron) and of RoCE: those of the target, and what their libraries find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.doctor.model import FAIL, MINOR, NOT_RUN, PASS, USER, Need
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit


def test_a_machine_without_neuron_devices_needs_no_driver(node: Node) -> None:
    need = replace(NEED, nvidia=False, gpu="Trainium", source="trn1", gpus=16)
    result = result_of(node.examine(need), "neuron")
    assert (result.severity, result.fix) == (USER, "use a node of that target")
    for name, text in (("class", "0x088000"), ("vendor", "0x1d0f"), ("device", "0x7164")):
        node.write(f"sys/bus/pci/devices/0000:10:1c.0/{name}", text)
    assert result_of(node.examine(need), "neuron").detail == "the Neuron driver is not loaded"


def test_reserved_ports_of_a_site_remain(node: Node) -> None:
    node.write("proc/sys/net/ipv4/ip_local_reserved_ports", "30000-32767,50000")
    result = result_of(node.examine(replace(NEED, nvidia=False, gpu="Trainium")), "neuron-ports")
    assert "=30000-32767,50000,48620;" in result.fix


def test_huge_pages_that_are_all_in_use_fail_with_efa(node: Node) -> None:
    node.write("proc/meminfo", "HugePages_Total:    8\nHugePages_Free:     0\n")
    assert result_of(node.examine(), "huge-pages").status == NOT_RUN
    assert result_of(node.examine(replace(NEED, fabric="efa")), "huge-pages").severity == MINOR
    node.write("proc/meminfo", "HugePages_Total:    8\nHugePages_Free:     2\n")
    assert result_of(node.examine(replace(NEED, fabric="efa")), "huge-pages").status == PASS


def test_efa_is_counted_by_libfabric(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for number, slot in enumerate(("0000:16:1b.0", "0000:32:1b.0")):
        for name, value in (("class", "0x020000"), ("vendor", "0x1d0f"), ("device", "0xefa1")):
            node.write(f"sys/bus/pci/devices/{slot}/{name}", value)
        node.write_port(f"rdmap{number}", layer="Unspecified")
        node.link(f"sys/class/infiniband/rdmap{number}/device/driver", "../drivers/efa")
    need = Need(source="efa", fabric="efa", efa=2)
    assert result_of(node.examine(need), "efa").status == NOT_RUN
    node.prints("fi_info", "fi_info.txt")
    assert result_of(node.examine(need), "efa").status == PASS
    assert result_of(node.examine(replace(need, efa=4)), "efa").status == FAIL
    node.program("fi_info", "echo 'fi_getinfo: -61 (No data available)' >&2; exit 1")
    assert result_of(node.examine(need), "efa").status == FAIL
    assert not result_of(node.examine(need), "efa").drains  # not the program of AWS' installer


def test_neuron_devices_are_compared_with_the_target(tmp_path: Path) -> None:
    node = Node(tmp_path)
    need = Need(source="trn1", gpu="Trainium1", gpus=2, fabric="efa")
    assert result_of(node.examine(need), "neuron").status == FAIL
    node.write("sys/module/neuron/version", "2.21")
    for number in range(2):
        node.write(f"sys/devices/virtual/neuron_device/neuron{number}/core_count", "2")
        node.write(f"dev/neuron{number}", "")
    node.prints("neuron-ls", "neuron-ls.json")
    node.write("proc/sys/net/ipv4/ip_local_reserved_ports", "1000,48600-48700")
    found = node.examine(need)
    assert [result_of(found, check).status for check in ("neuron", "neuron-ports")] == [PASS, PASS]
    assert "4 cores" in result_of(found, "neuron").detail
    node.write("proc/sys/net/ipv4/ip_local_reserved_ports", "")
    assert result_of(node.examine(need), "neuron-ports").status == FAIL


def test_the_index_of_roce_is_the_first_with_an_ipv4_address(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add_ports(layer="Ethernet")
    assert result_of(node.examine(Need()), "roce-gids").status == FAIL
    for device in ("mlx5_0", "mlx5_1"):
        place = f"sys/class/infiniband/{device}/ports/1"
        for index, kind, gid in (
            (0, "IB/RoCE v1", "fe80::1"),
            (3, "RoCE v2", "0000:0000:0000:0000:0000:ffff:c000:0201"),
        ):
            node.write(f"{place}/gids/{index}", gid)
            node.write(f"{place}/gid_attrs/types/{index}", kind)
    result = result_of(node.examine(Need()), "roce-gids")
    assert (result.status, result.detail) == (PASS, "NCCL_IB_GID_INDEX=3")
