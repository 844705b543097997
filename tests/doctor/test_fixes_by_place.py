"""The commands that repair a failure fit the machine: host or container, job or node, its distribution."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envbuild.doctor.checks import gpu_devices
from envbuild.doctor.checks.clock import synchronising
from envbuild.doctor.facts.packages import install_command
from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, MINOR, PASS, USER, Need
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit


def test_the_clock_of_a_container_is_its_hosts(node: Node) -> None:
    assert synchronising(node.host()) == "start chronyd or ntpd as root"
    node.enter_container()
    assert synchronising(node.host()).startswith("on the host: ")


@pytest.mark.parametrize(("release", "command"), [
    ('ID="rocky"\nID_LIKE="rhel centos fedora"', "dnf install b"), ("ID=debian", "apt-get install a"),
    ("ID=ubuntu\nID_LIKE=debian", "apt-get install a"), ('ID="sles"\nID_LIKE="suse"', "zypper install c"),
    ("", "apt-get install a, dnf install b, zypper install c"),
])  # fmt: skip
def test_a_package_is_installed_by_the_distributions_own_program(release: str, command: str, node: Node) -> None:
    node.write("etc/os-release", release)
    assert install_command(node.host(), "a", "b", "c") == command
    (node.bin / "nvidia-container-cli").unlink()
    assert result_of(node.examine(), "nvidia-container-toolkit").fix.startswith(command.split()[0])


def test_a_package_of_one_name_is_named_once(node: Node) -> None:
    assert install_command(node.host(), "jq") == "apt-get, dnf or zypper install jq"


@pytest.mark.parametrize(("job", "option"), [("7", "srun --container-mounts="), ("", "docker run --device=")])
def test_device_files_come_into_a_container_as_it_was_started(job: str, option: str, node: Node) -> None:
    node.enter_container()
    (node.root / "dev/infiniband/uverbs1").unlink()
    node.write("sys/module/gdrdrv/version", "2.4")
    (node.bin / "nvidia-smi").unlink()
    (node.root / "dev/nvidia1").unlink()
    found = node.examine(**({"SLURM_JOB_ID": job} if job else {}))
    assert result_of(found, "verbs-devices").fix == f"{option}/dev/infiniband"
    assert result_of(found, "gdrcopy").fix == f"{option}/dev/gdrdrv"
    assert [
        result_of(found, name).fix.startswith("docker run --gpus all") for name in ("nvidia-driver", "gpu-devices")
    ] == [
        not job,
        not job,
    ]


def test_a_missing_device_file_of_a_host_is_made(node: Node) -> None:
    (node.root / "dev/infiniband/uverbs1").unlink()
    node.write("sys/module/gdrdrv/version", "2.4")
    found = node.examine()
    assert result_of(found, "verbs-devices").fix.startswith("modprobe ib_uverbs; udevadm trigger")
    assert result_of(found, "gdrcopy").fix.startswith("mknod ")


def test_gpus_that_are_gone_from_a_node_are_for_its_administrator_and_a_wrong_node_for_the_user(node: Node) -> None:
    need = replace(NEED, gpus=8)
    bare = Node(node.root.parent / "bare")
    result = result_of(bare.examine(need), "nvidia-driver")
    assert (result.severity, "switch its power off" in result.fix) == (HARDWARE, True)
    result = result_of(bare.examine(need, SLURM_JOB_ID="7"), "nvidia-driver")
    assert (result.severity, result.fix) == (USER, "use a node of that target")
    assert result_of(bare.examine(need, SLURM_JOB_ID="7"), "rdma-ports").severity == USER


def test_an_old_driver_has_a_command_that_picks_versions(node: Node) -> None:
    node.write("sys/module/nvidia/version", "535.129.03")
    node.link("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.535.129.03")
    assert "envbuild check torch driver=535.129.03" in result_of(node.examine(), "nvidia-driver").fix


def test_modules_are_unloaded_before_what_they_use(node: Node) -> None:
    node.link("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.570.1.2")
    for name in ("nvidia_uvm", "nvidia_drm", "nvidia_modeset"):
        node.write(f"sys/module/{name}/refcnt", "1")
    fix = result_of(node.examine(), "nvidia-driver").fix
    assert (
        "rmmod nvidia_drm nvidia_modeset nvidia_peermem nvidia_uvm nvidia; modprobe -a nvidia nvidia_uvm nvidia_peermem"
        in fix
    )
    assert "systemctl stop nvidia-persistenced" in fix


def test_a_port_that_waits_beside_active_ones_needs_no_second_subnet_manager(node: Node) -> None:
    node.write_port("mlx5_1", state="2: INIT")
    assert result_of(node.examine(), "rdma-ports").fix.startswith("sminfo -C mlx5_1 -P 1; ")
    node.write_port("mlx5_0", state="2: INIT")
    assert "no subnet manager" in result_of(node.examine(), "rdma-ports").fix


@pytest.mark.parametrize(("need", "environ", "status", "severity"), [
    (Need(), {}, PASS, ""),
    (Need(), {"SLURM_GPUS_ON_NODE": "1"}, PASS, ""),
    (Need(), {"SLURM_GPUS_ON_NODE": "2"}, FAIL, ADMINISTRATOR),
    (NEED, {"SLURM_GPUS_ON_NODE": "1"}, FAIL, USER),
])  # fmt: skip
def test_a_job_may_use_the_gpus_that_it_requested(
    need: Need, environ: dict[str, str], status: str, severity: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        gpu_devices, "open_fault", lambda host, path: "Operation not permitted" if path.endswith("nvidia1") else ""
    )
    result = result_of(node.examine(need, SLURM_JOB_ID="7", **environ), "gpu-devices")
    assert (result.status, result.severity) == (status, severity)
    assert result.detail.startswith("the job may use 1 of 2 GPUs")
    assert result_of(node.examine(need), "gpu-devices").severity == ADMINISTRATOR


def test_a_missing_file_is_a_fault_in_a_job_too(node: Node) -> None:
    (node.root / "dev/nvidia1").unlink()
    result = result_of(node.examine(SLURM_JOB_ID="7"), "gpu-devices")
    assert (result.severity, result.detail) == (ADMINISTRATOR, "nvidia1: No such file or directory")


@pytest.mark.parametrize(("text", "fix"), [
    ("[ERROR] Command not found: jq", "apt-get, dnf or zypper install jq"),
    ("another", "as the same user: enroot version"),
])  # fmt: skip
def test_an_enroot_that_does_not_start_is_a_failure(text: str, fix: str, node: Node) -> None:
    node.program("enroot", f'echo "{text}" >&2; exit 1')
    result = result_of(node.examine(), "enroot")
    assert (result.status, result.severity, text in result.detail) == (FAIL, ADMINISTRATOR, True)
    assert result.fix.startswith(fix)
    (node.root / "proc/77/comm").unlink()
    assert result_of(node.examine(), "enroot").severity == MINOR
    assert HARDWARE not in {one.severity for one in node.examine().failures}


def test_missing_files_of_neuron_devices_are_for_who_started_the_container_or_has_the_node(node: Node) -> None:
    node.write("sys/module/neuron/version", "2.21")
    node.write("sys/devices/virtual/neuron_device/neuron0/core_count", "2")
    result = result_of(node.examine(), "neuron")
    assert (result.severity, result.fix) == (ADMINISTRATOR, "rmmod neuron; modprobe neuron")
    node.enter_container()
    result = result_of(node.examine(SLURM_JOB_ID="7"), "neuron")
    assert (result.severity, result.fix.split()[1]) == (USER, "--container-mounts=/dev/neuron0")
