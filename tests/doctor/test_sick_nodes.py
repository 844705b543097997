"""Nodes that cannot run jobs, and whose fault is not in the most visible place: each is drained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envbuild.doctor.health_check import health_lines
from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, MINOR, NOT_RUN, PASS, USER, Need
from tests.support.node_files import NEED, TEXTS, Node, result_of

pytestmark = pytest.mark.unit
LAST = "0000:43:00.0"
PROLOG = {"SLURM_JOB_ID": "7", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}
HEALTH = "    Fabric\n        Health\n            {} : {}\n"


def print_one_gpu(node: Node) -> None:
    """Make nvidia-smi print the first GPU alone, as of a GPU whose initialisation failed."""
    head, first, _ = (TEXTS / "nvidia-smi-q.h100.txt").read_text().split("\nGPU 0")
    file = node.root.parent / "one.txt"
    file.write_text(
        f"{head}\nGPU 0{first}".replace("Attached GPUs                             : 2", "Attached GPUs : 1")
    )
    node.program("nvidia-smi", f'case "$1" in topo) cat {TEXTS}/topo.tabs.txt ;; *) cat {file} ;; esac')


@pytest.mark.parametrize("need", [NEED, Need()])
@pytest.mark.parametrize("environ", [{}, PROLOG, {"SLURM_JOB_ID": "7"}])
def test_a_gpu_of_the_driver_that_nvidia_smi_does_not_list_is_named(
    need: Need, environ: dict[str, str], node: Node
) -> None:
    print_one_gpu(node)
    found = node.examine(need, **environ)
    result = result_of(found, "gpu-count")
    assert (result.status, result.severity, LAST in result.detail) == (FAIL, HARDWARE, True)
    assert "RmInitAdapter" in result.fix and health_lines(found, "healthcheck")[-1].startswith("scontrol update")


def test_a_gpu_that_a_job_may_not_open_is_not_a_missing_one(node: Node) -> None:
    print_one_gpu(node)
    (node.root / "dev/nvidia1").unlink()
    assert result_of(node.examine(Need(), SLURM_JOB_ID="7"), "gpu-count").status == PASS
    assert result_of(node.examine(Need()), "gpu-count").severity == HARDWARE


@pytest.mark.parametrize("context", ["prolog_slurmd", "epilog_slurmd", "prolog_task"])
def test_prolog_and_epilog_are_judged_as_the_node(context: str, node: Node) -> None:
    (node.root / f"proc/driver/nvidia/gpus/{LAST}/information").unlink()
    (node.root / f"proc/driver/nvidia/gpus/{LAST}").rmdir()
    (node.root / f"sys/bus/pci/devices/{LAST}/vendor").unlink()
    print_one_gpu(node)
    found = node.examine(SLURM_JOB_ID="7", SLURM_SCRIPT_CONTEXT=context)
    wanted = USER if context == "prolog_task" else HARDWARE  # a TaskProlog runs inside of the job
    assert result_of(found, "gpu-count").severity == wanted


def test_the_limit_of_processes_of_a_prolog_is_not_that_of_its_job(node: Node) -> None:
    node.write("proc/self/cgroup", "0::/system.slice")
    node.write("sys/fs/cgroup/cgroup.controllers", "pids")
    node.write("sys/fs/cgroup/system.slice/pids.max", "100")
    assert result_of(node.examine(**PROLOG), "cgroup").severity == MINOR


def test_a_job_whose_gpus_open_and_are_not_found_is_a_failure(node: Node) -> None:
    node.program("nvidia-smi", "echo 'No devices were found'; exit 6")
    found = node.examine(SLURM_JOB_ID="7", SLURM_GPUS_ON_NODE="2")
    result = result_of(found, "nvidia-driver")
    assert (result.status, result.severity) == (FAIL, ADMINISTRATOR)


@pytest.mark.parametrize(("key", "value", "severity"), [
    ("Summary", "Unhealthy", HARDWARE), ("Summary", "Limited Capacity", MINOR), ("Summary", "Healthy", ""),
    ("Incorrect Configuration", "Invalid Firmware Version", ADMINISTRATOR), ("Incorrect Configuration", "None", ""),
    ("Incorrect Configuration", "Not Supported", ""),
])  # fmt: skip
def test_the_summary_of_the_fabric_is_judged(key: str, value: str, severity: str, node: Node) -> None:
    node.change_smi(r"^    Processes", HEALTH.format(key, value) + "    Processes", gpu=1)
    assert result_of(node.examine(), "fabric-manager").severity == severity


def test_a_corrupted_inforom_is_named_by_its_gpu_whatever_the_exit_code(node: Node) -> None:
    report = TEXTS / "nvidia-smi-q.h100.txt"
    warning = "WARNING: infoROM is corrupted at gpu 0000:1B:00.0"
    node.program(
        "nvidia-smi",
        f'case "$1" in topo) cat {TEXTS}/topo.tabs.txt ;; *) cat {report}; echo "{warning}"; exit 14 ;; esac',
    )
    found = node.examine()
    assert result_of(found, "nvidia-driver").status == PASS
    result = result_of(found, "gpu-memory-errors")
    assert (result.severity, "0000:1B:00.0" in result.detail) == (HARDWARE, True)


@pytest.mark.parametrize(("code", "words"), [(8, "power cables"), (10, "interrupts")])
def test_exit_codes_of_nvidia_smi_that_name_hardware(code: int, words: str, node: Node) -> None:
    node.program("nvidia-smi", f"cat {TEXTS}/nvidia-smi-q.h100.txt; exit {code}")
    found = node.examine()
    result = result_of(found, "nvidia-driver")
    assert (result.severity, words in result.detail, "NVSMI LOG" in result.detail) == (HARDWARE, True, False)
    assert result_of(found, "gpu-settings").status == NOT_RUN


def test_a_target_with_a_smaller_number_of_gpus_hides_none(node: Node) -> None:
    print_one_gpu(node)
    assert result_of(node.examine(replace(NEED, gpus=1)), "gpu-count").severity == HARDWARE
