"""Checks on nodes made of files: a healthy one, and one fault at a time."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.doctor.checks import GROUPS, check_names, kernel, user_namespaces
from envbuild.doctor.facts.gpus import module_gpus
from envbuild.doctor.host import Host
from envbuild.doctor.model import FAIL, HARDWARE, NOT_RUN, PASS, SEVERITIES, USER, Need
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit
# read by system calls, which a copy of files does not answer
OF_THE_SYSTEM = {"clock", "cpu-affinity", "shared-memory", "user-namespaces", "image-store"}


def test_a_healthy_node_has_no_failure(node: Node) -> None:
    found = node.examine()
    assert [(one.check, one.detail) for one in found.failures] == []
    assert {one.check for one in found.results if one.status == PASS} >= {
        "cpu", "kernel", "memlock", "nvidia-driver", "gpu-count", "gpu-devices", "gpu-memory-errors", "gpu-settings",
        "gpu-pcie", "gpu-versions", "nvlink", "fabric-manager", "gpudirect", "rdma-ports", "rdma-firmware",
        "link-errors", "verbs-devices", "enroot", "pyxis", "slurm-node", "slurm-mpi", "xid",
    }  # fmt: skip
    assert found.facts["place"] == "compute node"
    assert [port["board"] for port in found.facts["network"]["ports"]] == ["MT_0000000891"] * 2
    assert [gpu["max_clocks"]["sm"] for gpu in found.facts["nvidia"]["gpus"]] == ["1980 MHz", "1980 MHz"]


def test_a_node_without_any_program_or_device_passes_nothing_about_devices(tmp_path: Path) -> None:
    found = Node(tmp_path).examine(Need())
    of_devices = [one for one in found.results if one.group in ("GPU", "network", "Neuron")]
    assert {one.status for one in of_devices} == {NOT_RUN}
    assert all(one.detail for one in found.results)


def test_a_program_of_slurm_that_fails_is_not_run_with_its_first_line(node: Node) -> None:
    node.program("srun", "echo 'srun: fatal: no controller' >&2; exit 1")
    found = node.examine()
    assert {result_of(found, check).detail for check in ("pyxis", "slurm-mpi")} == {
        "srun --help failed with exit code 1: srun: fatal: no controller",
        "srun --mpi=list failed with exit code 1: srun: fatal: no controller",
    }


def test_a_missing_gpu_of_a_node_is_hardware_and_of_a_job_its_request(node: Node) -> None:
    two = replace(NEED, gpus=len(module_gpus(node.host())) + 1)
    node.program("scontrol", "echo 'NodeName=n1 State=IDLE Gres=gpu:3 CfgTRES=cpu=1,gres/gpu=3'")
    result = result_of(node.examine(two), "gpu-count")
    assert (result.severity, "power" in result.fix) == (HARDWARE, True)
    result = result_of(node.examine(two, SLURM_JOB_ID="7"), "gpu-count")
    assert (result.severity, "srun --gpus-per-node" in result.fix) == (USER, True)


def test_locked_memory_of_a_session_and_of_a_job(node: Node) -> None:
    """slurmd passes no limit: an administrator's shell on the node has its own."""
    node.write("proc/self/limits", "Max locked memory  65536  65536 bytes")
    result = result_of(node.examine(), "memlock")
    assert (result.status, result.detail) == (PASS, "slurmd passes no limit to jobs; this session has 64 KiB")
    result = result_of(node.examine(SLURM_JOB_ID="7"), "memlock")
    assert (result.severity, result.fix.split(";")[0]) == (USER, "srun --propagate=NONE")


@pytest.mark.parametrize("code", [0, 6])
def test_a_job_that_requested_no_gpu_is_no_fault_of_the_node(code: int, node: Node) -> None:
    """Slurm hides the GPUs that a job did not request."""
    for number in range(2):
        (node.root / f"dev/nvidia{number}").unlink()
    node.program("nvidia-smi", f"echo 'No devices were found'; exit {code}")
    found = node.examine(SLURM_JOB_ID="7")
    assert "this job has no GPU" in result_of(found, "nvidia-driver").detail
    assert not [one for one in found.failures if "nvidia-smi" in one.detail]
    assert result_of(found, "gpu-versions").status == NOT_RUN
    assert result_of(node.examine(), "nvidia-driver").status == (FAIL if code else PASS)


def test_enroot_from_source_has_its_hooks_elsewhere(node: Node) -> None:
    node.program("enroot", 'ENROOT_SYSCONF_PATH="/usr/local/etc/enroot"; echo 3.5.0')
    result = result_of(node.examine(), "enroot")
    assert (result.status, "/usr/local/etc/enroot/hooks.d" in result.fix) == (FAIL, True)
    for name in ("98-nvidia.sh", "99-mellanox.sh"):
        node.write(f"usr/local/etc/enroot/hooks.d/{name}", "")
    assert result_of(node.examine(), "enroot").status == PASS


def test_one_of_a_domain_of_several_nodes_needs_a_channel(node: Node) -> None:
    assert result_of(node.examine(), "imex").status == NOT_RUN
    assert result_of(node.examine(replace(NEED, imex=True)), "imex").status == FAIL


@pytest.mark.parametrize("name", check_names())
def test_a_check_has_a_group_and_a_function(name: str) -> None:
    module = importlib.import_module(f"envbuild.doctor.checks.{name}")
    assert module.GROUP in GROUPS
    assert list(inspect.signature(module.check).parameters) == ["host", "need"]
    assert module.__doc__


def test_every_failure_has_a_severity_and_a_command(tmp_path: Path) -> None:
    found = Node(tmp_path).examine()
    assert found.failures
    assert all(one.severity in SEVERITIES and one.fix for one in found.failures)


def test_checks_by_system_calls_do_not_run_on_a_copy_of_files(node: Node) -> None:
    found = node.examine()
    assert {one.check for one in found.results if one.status == NOT_RUN} >= OF_THE_SYSTEM


def test_an_older_kernel_that_mounts_overlays_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "FLOOR", "99")
    step, number = user_namespaces.try_mount(overlay=True)
    (result,) = kernel.check(Host(), Need())
    assert result.status == (FAIL if number else PASS), user_namespaces.STEPS[step]
    assert ("an overlay was mounted" in result.detail) is not bool(number)


def test_a_check_that_raises_did_not_run(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(host: object, need: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(kernel, "check", fail)
    result = result_of(node.examine(), "kernel")
    assert (result.status, "broken" in result.detail) == (NOT_RUN, True)
