"""Nodes of several kinds with one health check: what Slurm has configured decides what a node lacks."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.doctor.health_check import health_lines
from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, NOT_RUN, PASS, USER, Need
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit
EIGHT = replace(NEED, source="h100-ib", gpus=8, nics=8)
BUS = "sys/bus/pci/devices"


def configure(node: Node, gres: str, count: int) -> None:
    """Write the node's GPUs into Slurm's answer."""
    tres = f",gres/gpu={count}" if count else ""
    node.program("scontrol", f"echo 'NodeName=n1 Gres={gres} State=IDLE CfgTRES=cpu=96{tres} AllocTRES='")


def remove_gpus(node: Node) -> None:
    for path in (BUS, "proc/driver", "sys/module/nvidia"):
        shutil.rmtree(node.root / path)


def test_a_cpu_node_is_not_drained_for_the_gpus_and_ports_of_a_target(node: Node) -> None:
    """Slurm has one HealthCheckProgram for the whole cluster."""
    remove_gpus(node)
    shutil.rmtree(node.root / "sys/class/infiniband")
    configure(node, "(null)", 0)
    found = node.examine(EIGHT)
    result = result_of(found, "target")
    assert (result.status, result.severity) == (FAIL, USER)
    assert "no GPUs configured" in result.detail and "h100-ib has 8" in result.detail
    assert health_lines(found, "healthcheck") == health_lines(found, "nhc") == []
    assert found.need.source == "h100-ib"


@pytest.mark.parametrize(("model", "need"), [("NVIDIA H100 80GB HBM3", EIGHT), ("NVIDIA L40S", NEED)])
def test_a_node_with_other_gpus_is_not_drained(model: str, need: Need, tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add_gpus(model=model)
    node.add_slurm()
    found = node.examine(need)
    assert result_of(found, "target").severity == USER
    assert {"gpu-count", "rdma-ports"}.isdisjoint({one.check for one in found.serious})
    assert health_lines(found, "nhc") == []


def test_a_node_of_the_target_is_compared_with_it(node: Node) -> None:
    assert result_of(node.examine(), "target").status == PASS
    assert result_of(node.examine(Need()), "target").status == NOT_RUN


def test_a_gpu_of_slurm_that_is_missing_drains_the_node(node: Node) -> None:
    configure(node, "gpu:h100:8", 8)
    found = node.examine(EIGHT)
    assert result_of(found, "target").status == PASS
    assert result_of(found, "gpu-count").severity == HARDWARE
    assert any(line.split(": ")[1] == "gpu-count" for line in health_lines(found, "nhc"))


def test_what_a_target_has_and_slurm_does_not_confirm_drains_no_node(node: Node) -> None:
    node.program("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    found = node.examine(EIGHT)
    assert result_of(found, "gpu-count").severity == HARDWARE
    assert not [line for line in health_lines(found, "nhc") if "gpu-count" in line]


def test_all_gpus_gone_from_the_bus_are_hardware(node: Node) -> None:
    remove_gpus(node)
    node.write(f"{BUS}/0000:00:1f.0/class", "0x060100")
    for need in (Need(), NEED):
        result = result_of(node.examine(need), "slurm-gpus")
        assert (result.severity, "on the PCI bus there are 0: 2 missing" in result.detail) == (HARDWARE, True)
    lines = health_lines(node.examine(), "nhc", only_hardware=True)
    assert {line.split(": ")[1] for line in lines} >= {"slurm-gpus", "nvidia-driver"}


@pytest.mark.parametrize(("kind", "vendor", "status"), [
    ("0x120000", "0x1002", NOT_RUN), ("0x038000", "0x1002", NOT_RUN), ("0x030000", "0x1002", NOT_RUN),
    ("0x120000", "0x1da3", NOT_RUN), ("0x030000", "0x1a03", FAIL),  # the last of the console
])  # fmt: skip
def test_gpus_of_another_vendor_are_not_compared_with_slurms(kind: str, vendor: str, status: str, node: Node) -> None:
    remove_gpus(node)
    for name, value in (("class", kind), ("vendor", vendor), ("device", "0x74a1")):
        node.write(f"{BUS}/0000:1b:00.0/{name}", value)
    result = result_of(node.examine(Need()), "slurm-gpus")
    assert (result.status, "another vendor" in result.detail) == (status, status == NOT_RUN)


def test_a_driver_without_gpus_is_no_pass_of_slurms_gpus(node: Node) -> None:
    shutil.rmtree(node.root / "proc/driver/nvidia/gpus")
    result = result_of(node.examine(Need()), "slurm-gpus")
    assert (result.status, "the driver lists no GPU" in result.detail) == (NOT_RUN, True)


def test_one_divided_gpu_of_whole_ones_is_the_administrators(node: Node) -> None:
    """Slurm promises whole GPUs, and a user cannot end MIG."""
    node.change_smi(r"(MIG Mode\n +Current +: )\S+", r"\1Enabled")
    result = result_of(node.examine(), "slurm-gpus")
    assert (result.severity, result.fix.startswith("nvidia-smi -mig 0 -i ")) == (ADMINISTRATOR, True)
    configure(node, "gpu:1g.10gb:7,gpu:h100:1", 8)
    assert result_of(node.examine(), "slurm-gpus").status == PASS


def test_a_node_with_roce_has_no_fix_that_changes_its_ports(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add_gpus()
    node.add_slurm()
    node.add_ports(layer="Ethernet")
    result = result_of(node.examine(), "rdma-ports")
    assert (result.severity, "LINK_TYPE_P1=1" in result.fix) == (USER, False)
    assert "not a node of h100x2" in result.detail


@pytest.mark.parametrize(("board", "drains"), [("MT_0000000891", True), ("MT_0000000223", False)])
def test_one_port_of_the_other_layer_is_named(board: str, drains: bool, node: Node) -> None:
    node.write_port("mlx5_1", layer="Ethernet", board=board)
    result = result_of(node.examine(), "rdma-ports")
    assert (result.severity, result.drains) == (ADMINISTRATOR, drains)
    assert result.fix.startswith("mlxconfig -d mlx5_1 set LINK_TYPE_P1=1")


def test_a_port_that_is_switched_off_is_not_hardware(node: Node) -> None:
    node.write_port("mlx5_1", state="1: DOWN", physical="3: Disabled")
    assert result_of(node.examine(), "rdma-ports").severity == ADMINISTRATOR


def test_an_adapter_that_is_gone_is_hardware_and_named(node: Node) -> None:
    for number in range(2, 8):
        node.write_port(f"mlx5_{number}")
    shutil.rmtree(node.root / "sys/class/infiniband/mlx5_3")
    configure(node, "gpu:h100:2", 2)
    result = result_of(node.examine(replace(NEED, nics=8)), "rdma-ports")
    assert (result.severity, "mlx5_3" in result.detail, "power off and on" in result.fix) == (HARDWARE, True, True)
    assert "use a node of" not in result.fix


@pytest.mark.parametrize(("ports", "severity"), [(4, USER), (7, HARDWARE)])
def test_a_node_that_is_built_with_half_of_the_adapters_is_not_hardware(ports: int, severity: str, node: Node) -> None:
    for number in range(ports):
        node.write_port(f"mlx5_{number}")
    assert result_of(node.examine(replace(NEED, nics=8)), "rdma-ports").severity == severity
