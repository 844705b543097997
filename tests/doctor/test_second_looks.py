"""Results of one moment, and those of a job or of a busy machine: a second look, a time limit, words."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.doctor.checks import clock, shared_memory
from envbuild.doctor.examination import examine
from envbuild.doctor.facts.storage import FileSystem
from envbuild.doctor.health_check import health_lines
from envbuild.doctor.host import Host
from envbuild.doctor.model import ADMINISTRATOR, FAIL, HARDWARE, MINOR, NOT_RUN, PASS, USER, Need
from envbuild.doctor.processes import Output
from envbuild.doctor.silent_files import unanswered
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit
LIMIT = "Max locked memory  8388608  8388608 bytes"
DEVICE = "/sys/class/infiniband/mlx5_1"


@pytest.mark.parametrize(("again", "severity"), [(False, HARDWARE), (True, MINOR)])
def test_a_device_that_answers_on_a_second_try_drains_no_node(again: bool, severity: str, node: Node) -> None:
    path = node.root / f"{DEVICE}/fw_ver".lstrip("/")
    path.unlink()
    os.mkfifo(path)
    host = node.host()
    host.files.limit = 0.5
    assert host.text(f"{DEVICE}/fw_ver") == ""
    if again:
        path.unlink()
        path.write_text("28.41.1000")
    host.files.limit = 0.5
    (result,) = unanswered(host)
    host.close()
    assert (result.severity, result.detail.startswith(DEVICE)) == (severity, True)


def test_a_pass_has_a_time_limit(node: Node) -> None:
    """slurmd ends its program after 60 s, and the node would have no answer."""
    node.program("enroot", "sleep 30")
    host = node.host()
    host.end = host.programs.end = time.monotonic() + 1
    start = time.monotonic()
    found = examine(host, NEED)
    assert time.monotonic() - start < 8
    assert any("reached its limit" in result.detail for result in found.unknown)
    assert health_lines(found, "nhc") == []


def test_a_limit_of_a_job_is_its_users(node: Node) -> None:
    node.write("proc/self/limits", LIMIT)
    (node.root / "proc/77/comm").unlink()
    node.enter_container()
    found = node.examine(SLURM_JOB_ID="7")
    result = result_of(found, "memlock")
    assert (result.severity, "limit of 8192 KiB" in result.detail) == (USER, True)
    assert not [line for line in health_lines(found, "nhc") if "memlock" in line]


def test_the_fabric_manager_is_named_once_and_whether_it_runs(node: Node) -> None:
    for gpu in (0, 1):
        node.change_smi("Completed", "In Progress", gpu=gpu)
        node.change_smi("Success", "N/A", gpu=gpu)
    result = result_of(node.examine(), "fabric-manager")
    words = "not registered by the fabric manager: all 2 GPUs: In Progress; it does not run"
    assert (result.severity, result.detail) == (ADMINISTRATOR, words)
    node.write("proc/88/comm", "nv-fabricmanage")
    node.write("proc/88/status", "Name:\tnv-fabricmanage\nUid:\t0\t0\t0\t0\n")
    assert result_of(node.examine(), "fabric-manager").detail == words.partition(";")[0]


def test_the_line_about_an_error_is_quoted_and_not_the_banner() -> None:
    text = "\n==============NVSMI LOG==============\n\nDriver Version : 580\nGPU 00000000:1B:00.0\n    PCI\n"
    error = "Unable to determine the device handle for GPU2: 0000:52:00.0: Unknown Error"
    assert error in Output("", error + "\n", 15).failure("nvidia-smi -q")
    assert error in Output(f"{text}{error}\n", "", 15).failure("nvidia-smi -q", last=True)
    assert error in Output(f"{text}{error}\n", "", 15).failure("nvidia-smi -q")


@pytest.mark.parametrize(("limit", "words"), [
    ("4000000000", "memory 4.0 GB"), ("9223372036854771712", "memory unlimited"),
])  # fmt: skip
def test_a_cgroup_of_version_1_is_read(limit: str, words: str, node: Node) -> None:
    node.write("proc/self/cgroup", "9:memory:/slurm/job_7\n4:cpu,cpuacct:/\n2:pids:/slurm\n1:name=systemd:/x\n0::/")
    node.write("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", limit)
    node.write("sys/fs/cgroup/pids/slurm/pids.max", "max")
    result = result_of(node.examine(), "cgroup")
    assert (result.status, result.detail) == (PASS, f"{words}, processes unlimited")
    node.write("proc/self/cgroup", "")
    assert result_of(node.examine(), "cgroup").status == NOT_RUN


def test_a_daemon_that_sets_the_clock_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def adjtimex(self, timex: object) -> int:
            timex._obj[clock.STATUS] = clock.UNSYNCHRONISED  # type: ignore[attr-defined]
            return 0

    monkeypatch.setattr(clock.ctypes, "CDLL", lambda *_, **__: Library())
    host = node.host()
    monkeypatch.setattr(type(host), "is_real", True)
    (result,) = clock.check(host, Need())
    assert (result.status, result.severity, "a time server" in result.detail) == (FAIL, MINOR, True)
    node.write("proc/90/comm", "chronyd")
    (result,) = clock.check(host, Need())
    assert (result.severity, "chronyd runs" in result.detail, "rtcsync" in result.fix) == (MINOR, True, True)


def test_an_idle_gpu_that_is_slowed_down_is_named_as_such(node: Node) -> None:
    node.change_smi(r"(HW Slowdown +: )Not Active", r"\1Active")
    result = result_of(node.examine(), "gpu-pcie")
    assert (result.severity, "of idle GPUs" in result.detail) == (MINOR, True)


def test_what_a_rank_needs_of_shared_memory_drains_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    small = FileSystem("/dev/shm", "/dev/shm", "tmpfs", 4 << 30, 4 << 30)
    monkeypatch.setattr(shared_memory, "file_system", lambda host, path: small)
    (result,) = shared_memory.check(Host(), replace(NEED, gpus=8))
    assert (result.status, result.unfit) == (FAIL, False)


@pytest.mark.parametrize(("limit", "severity"), [(8388608, ADMINISTRATOR), (64 << 30, MINOR)])
def test_a_large_limit_of_locked_memory_is_minor(limit: int, severity: str, node: Node) -> None:
    node.write("proc/77/limits", f"Max locked memory  {limit}  {limit} bytes")
    assert result_of(node.examine(), "memlock").severity == severity


def test_ports_of_roce_without_an_address_drain_where_a_target_needs_them(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add_ports(layer="Ethernet")
    for need, drains in ((Need(), False), (replace(NEED, layer="Ethernet"), True)):
        result = result_of(node.examine(need), "roce-gids")
        assert (result.severity, result.drains) == (ADMINISTRATOR, drains)


def test_jobs_run_without_gpudirect(node: Node) -> None:
    (node.root / "sys/module/nvidia_peermem/version").unlink()
    node.write("proc/driver/nvidia/version", "NVRM version: Kernel Module  580.95.05  x")
    result = result_of(node.examine(), "gpudirect")
    assert (result.severity, result.unfit) == (ADMINISTRATOR, False)
