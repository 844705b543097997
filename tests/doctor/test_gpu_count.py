"""GPUs by the PCI bus, the driver and the place: what has fallen off, and what a container was not given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.doctor.facts.gpus import module_gpus, pci_devices
from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, MINOR, PASS, USER, Need
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit
LAST = "0000:43:00.0"


def take_from_driver(node: Node) -> None:
    (node.root / f"proc/driver/nvidia/gpus/{LAST}/information").unlink()
    (node.root / f"proc/driver/nvidia/gpus/{LAST}").rmdir()


def test_a_gpu_that_has_fallen_off_is_named(node: Node) -> None:
    take_from_driver(node)
    result = result_of(node.examine(), "gpu-count")
    assert (result.severity, f"1 in the driver: without {LAST}" in result.detail) == (HARDWARE, True)


@pytest.mark.parametrize(("job", "fix"), [("7", "srun --gpus-per-node=2"), ("", "docker run --gpus all")])
def test_a_container_with_some_gpus_has_none_that_fell_off(job: str, fix: str, node: Node) -> None:
    """It sees the whole bus, and its own GPUs alone in the driver: each such job had the command that drains."""
    take_from_driver(node)
    node.enter_container()
    environ = {"SLURM_JOB_ID": job} if job else {}
    assert result_of(node.examine(Need(), **environ), "gpu-count").status == PASS
    result = result_of(node.examine(replace(NEED, gpus=2), **environ), "gpu-count")
    assert (result.status, result.severity, result.fix.startswith(fix)) == (FAIL, USER, True)


def test_a_gpu_of_a_virtual_machine_has_not_fallen_off(node: Node) -> None:
    take_from_driver(node)
    node.link(f"sys/bus/pci/devices/{LAST}/driver", "../../../bus/pci/drivers/vfio-pci")
    assert result_of(node.examine(Need()), "gpu-count").status == PASS


def test_a_gpu_for_a_screen_has_not_fallen_off(node: Node) -> None:
    for name, text in (("class", "0x030000"), ("vendor", "0x10de"), ("device", "0x1cb1")):
        node.write(f"sys/bus/pci/devices/0000:05:00.0/{name}", text)
    assert result_of(node.examine(), "gpu-count").status == PASS


@pytest.mark.parametrize(("driver", "severity", "fix"), [
    ("nouveau", ADMINISTRATOR, "as root: echo blacklist nouveau > /etc/modprobe.d/"),
    ("vfio-pci", MINOR, "none, if virtual machines have them"), ("", ADMINISTRATOR, "modprobe nvidia; "),
])  # fmt: skip
def test_gpus_without_their_driver(driver: str, severity: str, fix: str, node: Node) -> None:
    for path in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
        (node.root / path).unlink()
    for slot in ("0000:1b:00.0", LAST):
        if driver:
            node.link(f"sys/bus/pci/devices/{slot}/driver", f"../../../bus/pci/drivers/{driver}")
    result = result_of(node.examine(Need()), "nvidia-driver")
    assert (result.status, result.severity, result.fix.startswith(fix)) == (FAIL, severity, True)


def test_gpus_are_in_the_order_of_the_bus(tmp_path: Path) -> None:
    """Numbers of the bus are hexadecimal: 9d is not before 43."""
    node = Node(tmp_path)
    slots = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "9d", "c3", "df")]
    for minor, slot in enumerate(slots):
        node.write_gpu(slot, minor, "NVIDIA H100 80GB HBM3")
        node.write(f"sys/bus/pci/devices/{slot}/class", "0x030200")
    assert [gpu.bus for gpu in module_gpus(node.host())] == slots
    assert [device.slot for device in pci_devices(node.host())] == slots
