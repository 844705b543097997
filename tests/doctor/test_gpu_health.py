"""A sick GPU in nvidia-smi's answer, and what it does not decide about the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.doctor.facts.gpus import smi_fault
from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, MINOR, NOT_RUN, PASS
from tests.support.node_files import Node, result_of

pytestmark = pytest.mark.unit

OTHERS = {"gpu-versions", "imex", "fabric-manager", "gpu-settings", "gpu-pcie", "gpu-memory-errors"}
ALL = r"^(    +\S.*? +: ).*$"  # each value


@pytest.mark.parametrize(("answer", "severity", "words"), [
    ("GPU is lost", HARDWARE, "lost, does not answer the driver: 00000000:43:00.0 (GPU is lost)"),
    ("Unknown Error", HARDWARE, "lost, does not answer the driver: 00000000:43:00.0 (Unknown Error)"),
    ("GPU requires reset", ADMINISTRATOR, "requires a reset: 00000000:43:00.0"),
])  # fmt: skip
def test_a_gpu_that_does_not_answer_decides_nothing_else(answer: str, severity: str, words: str, node: Node) -> None:
    """nvidia-smi has the same text as the value of each of its keys."""
    node.change_smi(ALL, rf"\1{answer}", gpu=1)
    found = node.examine()
    result = result_of(found, "gpu-count")
    assert (result.status, result.severity, result.detail) == (FAIL, severity, words)
    assert not {one.check for one in found.failures} & OTHERS
    if severity == ADMINISTRATOR:
        assert "nvidia-smi --gpu-reset -i 00000000:43:00.0" in result.fix


def test_one_value_that_requires_a_reset_is_enough_and_one_unknown_value_is_not(node: Node) -> None:
    node.change_smi(r"^( +)(ECC Errors)$", r"\1\2\n\1    Channel Repair Pending : GPU requires reset")
    assert result_of(node.examine(), "gpu-count").detail == "requires a reset: 00000000:1B:00.0"
    node.change_smi("GPU requires reset", "Unknown Error")
    assert result_of(node.examine(), "gpu-count").status == PASS


def test_gpus_that_are_all_silent_pass_nothing(node: Node) -> None:
    for number in (0, 1):
        node.change_smi(ALL, r"\1Unknown Error", gpu=number)
    assert smi_fault(node.host()) == "no GPU answers the driver"
    assert {result_of(node.examine(), name).status for name in OTHERS} == {NOT_RUN}


def test_the_name_of_a_process_is_not_a_value_of_the_gpu(node: Node) -> None:
    """Any user can start a program under any name."""
    name = r"    Processes\n        Process ID : 42\n            Name : GPU is lost\n            GPU requires reset"
    node.change_smi(r"^    Processes.*$", name)
    assert result_of(node.examine(), "gpu-count").status == PASS


FORGED = (
    "GPU 00000000:{0}:00.0{1}    Product Name : GPU is lost{1}    GPU Recovery Action : Reboot{1}    Processes : None"
)


@pytest.mark.parametrize("bus", ["43", "1B", "99"])
@pytest.mark.parametrize("end", ["\f", "\v", "\x1c", "\x85", "\u2028", "\n"])
def test_a_process_whose_name_is_a_gpu_drains_no_node(end: str, bus: str, node: Node) -> None:
    name = FORGED.format(bus, end)
    lines = f"    Processes\n        Process ID : 42\n            Name : python{end}{name}"
    node.change_smi(r"^    Processes.*$", lines.replace("\\", "\\\\"))
    found = node.examine()
    assert not [one for one in found.failures if one.group == "GPU"]
    assert end == "\n" or result_of(found, "gpu-settings").status == PASS


@pytest.mark.parametrize(("line", "severity"), [
    ("    Aggregate\n            SRAM Threshold Exceeded : Yes", HARDWARE), ("    Unrepairable Memory : Yes", HARDWARE),
    ("    Channel Repair Pending : Yes", ADMINISTRATOR), ("    TPC Repair Pending : Yes", ADMINISTRATOR),
])  # fmt: skip
def test_memory_that_is_beyond_repair_or_waits_for_it(line: str, severity: str, node: Node) -> None:
    node.change_smi(r"^    ECC Errors$", f"    ECC Errors\n    {line}", gpu=1)
    result = result_of(node.examine(), "gpu-memory-errors")
    assert (result.status, result.severity, "00000000:43:00.0" in result.detail) == (FAIL, severity, True)
    assert ("-i 00000000:43:00.0" in result.fix) == (severity == ADMINISTRATOR)


@pytest.mark.parametrize(("line", "severity"), [
    ("Bandwidth : Degraded", HARDWARE), ("Route Unhealthy : True", HARDWARE), ("Access Timeout Recovery : True", MINOR),
    ("Bandwidth : Full", ""),
])  # fmt: skip
def test_the_health_of_the_fabric_is_read(line: str, severity: str, node: Node) -> None:
    node.change_smi(r"^    Fabric$", f"    Fabric\n        Health\n            {line}")
    assert result_of(node.examine(), "fabric-manager").severity == severity


def test_switches_without_their_manager_fail_where_gpus_state_no_fabric(node: Node) -> None:
    """A100: each CUDA program ended with error 802."""
    for number in (0, 1):
        node.change_smi(r"^(        (?:State|Status) +: ).*$", r"\1N/A", gpu=number)
    assert result_of(node.examine(), "fabric-manager").status == NOT_RUN
    for name, text in (("class", "0x068000"), ("vendor", "0x10de"), ("device", "0x1af1")):
        node.write(f"sys/bus/pci/devices/0000:05:00.0/{name}", text)
    assert result_of(node.examine(), "fabric-manager").status == FAIL
    node.write("proc/driver/nvidia-nvswitch/devices/0000:05:00.0/information", "")
    result = result_of(node.examine(), "fabric-manager")
    assert (result.status, result.severity) == (FAIL, ADMINISTRATOR)
    assert result.fix.startswith("systemctl start nvidia-fabricmanager")
    node.write("proc/88/comm", "nv-fabricmanage")
    node.write("proc/88/status", "Uid:\t0\t0\t0\t0")
    assert result_of(node.examine(), "fabric-manager").status == PASS
    (node.root / "proc/1/comm").unlink()
    (node.root / "proc/88/comm").unlink()
    assert result_of(node.examine(), "fabric-manager").status == NOT_RUN
    node.write("proc/1/comm", "systemd")
    node.enter_container()
    assert result_of(node.examine(), "fabric-manager").status == NOT_RUN


def test_another_vbios_is_minor_and_a_missing_value_is_none(node: Node) -> None:
    node.change_smi(r"^(    VBIOS Version +: ).*$", r"\g<1>96.00.9F.00.01", gpu=1)
    assert result_of(node.examine(), "gpu-versions").severity == MINOR
    node.change_smi(r"^(    VBIOS Version +: ).*$", r"\1Unknown Error", gpu=1)
    assert result_of(node.examine(), "gpu-versions").status == PASS


def test_pages_that_wait_and_a_corrupted_inforom(node: Node, tmp_path: Path) -> None:
    node.change_smi(r"^    ECC Errors$", "    Retired Pages\n        Pending Page Blacklist : Yes\n    ECC Errors")
    assert result_of(node.examine(), "gpu-memory-errors").detail == "pages wait to be retired: 00000000:1B:00.0"
    node.change_smi("Pending Page Blacklist : Yes", "Pending Page Blacklist : No")
    warning = "WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n"
    file = tmp_path / "smi.txt"
    text = file.read_text()
    file.write_text(text.rstrip("\n") + f"\n            Name : x\n{warning}            Used GPU Memory : 1 MiB\n")
    assert result_of(node.examine(), "gpu-memory-errors").status == PASS  # a name of a process
    file.write_text(text + warning)
    result = result_of(node.examine(), "gpu-memory-errors")
    assert (result.severity, result.detail) == (HARDWARE, "the infoROM is corrupted: 0000:1B:00.0")
