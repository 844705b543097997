"""Logs of jobs that ended by their program, of jobs that work, and of containers that did not start."""

from __future__ import annotations

import pytest

from envbuild.doctor.job_log import read_log
from envbuild.doctor.log_results import log_results
from envbuild.doctor.model import ADMINISTRATOR, FAIL, MINOR, PASS, USER, Need, Result

pytestmark = pytest.mark.unit
INFO = "dgx1:10:11 [0] NCCL INFO Using network IB"
IB = Need(source="h100-ib", fabric="infiniband")


def results(*lines: str, need: Need = IB) -> dict[str, Result]:
    return {one.check: one for one in log_results(read_log(lines), need)}


@pytest.mark.parametrize("error", ["Permission denied", "Operation not permitted", "No space left on device"])
def test_a_limit_of_namespaces_is_no_full_disk(error: str) -> None:
    """The hint removed images, and repaired nothing."""
    found = results(
        "pyxis: container start failed with error code: 1",
        f"pyxis:     enroot-nsenter: failed to create user namespace: {error}",
    )
    assert [name for name, one in found.items() if one.status == FAIL] == ["container-namespace"]
    assert found["container-namespace"].severity == ADMINISTRATOR


def test_a_full_disk_remains_one() -> None:
    found = results("pyxis:     write error: No space left on device")
    assert "container-disk" in found


@pytest.mark.parametrize("before", ["", "0: ", "[rank0]: "])
def test_an_exception_is_quoted(before: str) -> None:
    lines = (
        INFO, f"{before}Traceback (most recent call last):", f'{before}  File "train.py", line 3, in <module>',
        f"{before}ValueError: vocab size mismatch", "srun: error: dgx1: task 0: Exited with exit code 1",
    )  # fmt: skip
    found = results(*lines)
    assert found["exception"].detail == "an exception of a program: ValueError: vocab size mismatch (line 4)"
    assert (found["exception"].severity, "task-ended" in found) == (USER, False)
    ends = results(INFO, lines[-1], "slurmstepd: error: *** STEP 1.0 ON a CANCELLED AT 2026-11-24T10:00:00 ***")
    assert [name for name, one in ends.items() if one.status == FAIL] == ["task-ended"]
    assert [one.status for one in results(*lines[1:]).values()] == [FAIL]  # without a word of NCCL


def test_an_exception_that_was_handled_is_minor() -> None:
    lines = ["Traceback (most recent call last):", "ValueError: retry", *["step"] * 30]
    assert results(INFO, *lines)["exception"].severity == MINOR


@pytest.mark.parametrize("line", [
    "[I] The port 8888 is already in use, trying another port. OSError: Address already in use",
    "memory.events: low 0 high 0 max 0 oom 0 oom_kill 0", "oom-killer was not invoked",
    "max locked memory limit: unlimited",
    "auto-tuning batch size: 64 failed (CUDA out of memory), trying 32", 'Test "CUDA out of memory" handling: passed',
])  # fmt: skip
def test_a_line_of_a_job_that_works_is_no_fault(line: str) -> None:
    assert [one.status for one in results(INFO, line).values()] == [PASS]


def test_a_part_of_the_channels_without_gpudirect_is_minor() -> None:
    paths = ["via NET/IB/0/GDRDMA", "via NET/IB/1", "via NET/IB/2", "via NET/IB/3"]
    found = results(INFO, *(f"dgx1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] {path}" for path in paths))
    assert found["network"].severity == MINOR
    assert found["network"].detail.endswith("3 of 4 channels without GPUDirect RDMA: NET/IB/1, NET/IB/2, NET/IB/3")


@pytest.mark.parametrize(("size", "severity"), [
    ("nRanks 8 nNodes 1 localRanks 8", MINOR), ("nRanks 16 nNodes 2 localRanks 8", USER),
    ("nranks 8 cudaDev 0 busId 1b000 localSize 8", MINOR), ("nranks 16 cudaDev 0 busId 1b000 localSize 8", USER),
])  # fmt: skip
def test_tcp_in_a_job_of_one_node_is_minor(size: str, severity: str) -> None:
    lines = [
        "a:1:2 [0] NCCL INFO NET/IB : No device found.",
        "a:1:2 [0] NCCL INFO Using network Socket",
        f"a:1:2 [0] NCCL INFO comm 0x1 rank 0 {size}",
    ]
    assert results(*lines)["network"].severity == severity
    assert ("no-device" in results(*lines)) == (severity == USER)


def test_the_network_of_google_cloud_is_not_tcp() -> None:
    assert results("a:1:2 [0] NCCL INFO Using network FasTrak")["network"].status == PASS
