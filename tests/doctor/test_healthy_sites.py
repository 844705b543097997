"""Nodes that are set up otherwise than others, and run their jobs: none of these is drained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.doctor.checks import shared_memory
from envbuild.doctor.facts.storage import FileSystem, binary_amount
from envbuild.doctor.health_check import health_lines
from envbuild.doctor.host import Host
from envbuild.doctor.model import ADMINISTRATOR, FAIL, MINOR, NOT_RUN, PASS, USER, Need
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit
LIMIT = "Max locked memory  8388608  8388608 bytes"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Release"


def test_a_site_without_enroot_and_pyxis_has_other_containers(node: Node) -> None:
    (node.bin / "enroot").unlink()
    assert result_of(node.examine(), "enroot").status == FAIL  # pyxis needs it
    node.program("srun", "echo '  --help'; echo '  --usage'")
    found = node.examine()
    assert {result_of(found, name).status for name in ("enroot", "pyxis")} == {NOT_RUN}
    assert health_lines(found, "nhc") == []


def test_an_older_kernel_drains_no_node(node: Node) -> None:
    node.write("proc/sys/kernel/osrelease", "4.18.0-553.el8_10")
    assert health_lines(node.examine(), "nhc") == []


@pytest.mark.parametrize("need", [replace(NEED, fabric="ethernet", nics=0, rate=0, layer=""), Need()])
def test_an_ethernet_adapter_that_could_do_rdma_needs_none_of_its_settings(need: Need, tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add_gpus()
    node.add_slurm()
    node.write_port("mlx5_0", layer="Ethernet")
    node.write("dev/infiniband/uverbs0", "")
    node.write("proc/driver/nvidia/version", CLOSED)
    for pid in ("self", "77"):
        node.write(f"proc/{pid}/limits", LIMIT)
    found = node.examine(need)
    assert {result_of(found, name).status for name in ("memlock", "gpudirect", "roce-gids")} == {NOT_RUN}
    assert health_lines(found, "nhc") == []


def test_efa_has_ways_of_its_own_to_the_memory_of_gpus(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add_gpus()
    node.write("proc/driver/nvidia/version", CLOSED)
    node.write_port("rdmap0", layer="Unspecified")
    node.link("sys/class/infiniband/rdmap0/device/driver", "../drivers/efa")
    need = Need(fabric="efa")
    result = result_of(node.examine(need), "gpudirect")
    assert (result.status, "efa_nv_peermem" in result.fix) == (FAIL, True)
    node.write("sys/class/infiniband/rdmap0/device/p2p", "NVIDIA")
    assert result_of(node.examine(need), "gpudirect").status == PASS
    node.write("sys/class/infiniband/rdmap0/device/p2p", "NONE")
    node.write("sys/module/efa_nv_peermem/refcnt", "1")
    assert result_of(node.examine(need), "gpudirect").status == PASS


def test_the_limit_of_a_login_node_is_minor_and_passed_to_jobs(node: Node) -> None:
    node.write("proc/self/limits", LIMIT)
    (node.root / "proc/77/comm").unlink()
    result = result_of(node.examine(), "memlock")
    assert (result.severity, "pass to jobs" in result.detail) == (MINOR, True)
    node.write("etc/systemd/system/multi-user.target.wants/slurmd.service", "")
    assert result_of(node.examine(), "memlock").status == NOT_RUN
    assert result_of(node.examine(SLURM_JOB_ID="7"), "memlock").severity == USER


def test_memory_that_a_job_shares_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    full = FileSystem("/dev/shm", "/dev/shm", "tmpfs", 10 << 30, 1 << 28)
    monkeypatch.setattr(shared_memory, "file_system", lambda host, path: full)
    (result,) = shared_memory.check(Host(), Need())
    assert (result.severity, result.detail) == (MINOR, "256 MiB of 10.0 GiB are free")
    assert "ls -lt" not in result.fix and "squeue" in result.fix
    monkeypatch.setattr(shared_memory, "file_system", lambda host, path: full._replace(size=64 << 20))
    (result,) = shared_memory.check(Host(), Need())
    assert result.detail == "64 MiB, and a rank needs 1.0 GiB"
    assert binary_amount(8 << 30) == "8.0 GiB"


def test_an_unreserved_port_of_neuron_is_minor(node: Node) -> None:
    node.write("proc/sys/net/ipv4/ip_local_reserved_ports", "")
    assert result_of(node.examine(replace(NEED, nvidia=False, gpu="Trainium")), "neuron-ports").severity == MINOR


def test_a_compute_node_needs_no_store(node: Node) -> None:
    assert "needs no store" in result_of(node.examine(), "image-store").detail


def test_the_limit_of_processes_is_judged_in_a_job(node: Node) -> None:
    node.write("proc/self/cgroup", "0::/system.slice")
    node.write("sys/fs/cgroup/cgroup.controllers", "pids")
    node.write("sys/fs/cgroup/system.slice/pids.max", "100")
    assert result_of(node.examine(), "cgroup").severity == MINOR
    assert result_of(node.examine(SLURM_JOB_ID="7"), "cgroup").severity == ADMINISTRATOR
    node.enter_container()
    assert result_of(node.examine(), "cgroup").fix == "docker run --pids-limit=-1"


@pytest.mark.parametrize(("governor", "preference", "severity"), [
    ("performance", "", ""), ("powersave", "", MINOR), ("powersave", "performance", ""),
    ("powersave", "balance_performance", ""), ("powersave", "balance_power", MINOR),
])  # fmt: skip
def test_a_cpu_that_saves_power_is_minor(governor: str, preference: str, severity: str, node: Node) -> None:
    assert result_of(node.examine(), "cpu-frequency").status == NOT_RUN
    for number in range(2):
        node.write(f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor", governor)
        node.write(f"sys/devices/system/cpu/cpu{number}/cpufreq/energy_performance_preference", preference)
    assert result_of(node.examine(), "cpu-frequency").severity == severity
