"""Checks of one node: what passes, what fails, and what does not run, on recorded outputs of programs."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.doctor.processes import Output, Programs
from envbuild.gpu import driver, negative
from envbuild.gpu.bench import Bench
from envbuild.gpu.copies import MARK as COPIES
from envbuild.gpu.driver import Devices, parse_devices, read_devices
from envbuild.gpu.kernels import CASES, parse_kernel
from envbuild.gpu.kernels import MARK as KERNEL
from envbuild.gpu.model import FAIL, NOT_RUN, PASS, Outcome
from envbuild.gpu.negative import negative_fault
from envbuild.gpu.node_checks import NodeCheck, node_checks, run_check, run_checks
from envbuild.gpu.tools.nccl_log import parse_nccl_log
from tests.support.gpu_bench import H100, bench, eight_ranks, job, program, recorded

pytestmark = pytest.mark.unit

ONE = {"maxBytes 512": "maxBytes 1073741824", "         512           128": "  1073741824     268435456"}


def result(at: Bench, name: str) -> Outcome:
    (check,) = [check for check in node_checks(at.job) if check.name.startswith(name)]
    return run_check(check, at)


def test_without_a_gpu_no_check_passes(tmp_path: Path) -> None:
    at = bench(tmp_path, layers=(), versions={})
    at.devices = Devices(fault="libcuda.so.1 is missing: no NVIDIA driver")
    outcomes = run_checks(at, lambda line: None)
    assert {outcome.status for outcome in outcomes} == {NOT_RUN}
    assert len(outcomes) == len(list(node_checks(at.job))) + 3
    assert all(outcome.detail for outcome in outcomes)


def test_this_machine_has_no_gpu_or_names_it() -> None:
    """The driver is queried for real."""
    found = read_devices()
    assert bool(found.gpus) is not bool(found.fault)


def test_the_stub_of_a_toolkit_is_not_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """libm has no function of CUDA, as a stub lacks some."""
    monkeypatch.setattr(driver, "LIBRARY", "libm.so.6")
    assert driver.read_devices().fault.startswith("libm.so.6 is not the one of a driver: ")


def test_one_gpu_states_what_it_cannot_show(tmp_path: Path) -> None:
    outcomes = {
        outcome.name: outcome for outcome in run_checks(bench(tmp_path, layers=(), versions={}), lambda line: None)
    }
    for name in ("NVLink and NVSwitch", "InfiniBand, EFA and GPUDirect RDMA"):
        assert (outcomes[name].status, outcomes[name].detail) == (NOT_RUN, "one GPU, no fabric")
    assert outcomes["bandwidth between two GPUs"].status == NOT_RUN
    assert outcomes["NCCL: all-reduce over all GPUs of the node"].detail == "one GPU, no NVLink"


def test_gpus_of_another_kind_fail(tmp_path: Path) -> None:
    at = bench(tmp_path, 2)
    assert result(at, "GPUs").status == PASS
    assert "2 of 8" in result(at, "GPUs").detail
    at.devices = replace(at.devices, gpus=(H100, replace(H100, name="NVIDIA A100-SXM4-80GB", sm="8.0")))
    assert result(at, "GPUs").status == FAIL
    at.devices = replace(at.devices, gpus=(replace(H100, sm="8.0"),))
    assert "compute capability 8.0" in result(at, "GPUs").detail


def test_one_rank_of_nccl_proves_results_and_no_bandwidth(tmp_path: Path) -> None:
    at = bench(tmp_path)
    program(tmp_path, "all_reduce_perf", recorded("nccl-tests.one-gpu.txt", ONE))
    found = result(at, "NCCL: one rank")
    assert (found.status, found.figures, found.curves) == (PASS, (), ())


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"# Out of bounds values : 0 OK\n": ""}, 0, "incomplete"),
        ({"# Avg bus bandwidth    : 0\n": ""}, 0, "incomplete"),
        ({"  1073741824     268435456     float": "#"}, 0, "were requested"),
        ({"0.12    0.00      0 ": "0.12    0.00      7 "}, 0, "7 wrong values"),
        ({}, 3, "exit code 3"),
    ],
)
def test_a_run_that_is_truncated_wrong_or_failed_is_a_failure(
    changes: dict[str, str], code: int, words: str, tmp_path: Path
) -> None:
    text = recorded("nccl-tests.one-gpu.txt", ONE)
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    program(tmp_path, "all_reduce_perf", text, code=code)
    found = result(bench(tmp_path), "NCCL: one rank")
    assert found.status == FAIL and words in found.detail


def test_rows_that_differ_from_the_file_of_a_newer_nccl_tests_fail(tmp_path: Path) -> None:
    """The second run has a file, because the first one printed its version."""
    text = "# nccl-tests version 2.19.6 nccl-headers=23007 nccl-library=23007\n" + recorded(
        "nccl-tests.one-gpu.txt", ONE
    )
    rows = [line for line in text.splitlines(keepends=True) if "float" in line]
    text = text.replace("".join(rows[:2]), "")
    document = recorded("nccl-tests.json", {"8589934592": str(1 << 30), "469.84": "0.0"})
    for content, status in (
        (document, PASS),
        (document[:-30], FAIL),
        (document.replace('"bus_bw": 0.0', '"bus_bw": 9'), FAIL),
    ):
        at = bench(tmp_path)
        program(tmp_path, "all_reduce_perf", text)
        assert result(at, "NCCL: one rank").status == PASS and at.tests_version == "2.19.6"
        (tmp_path / "document").write_text(content)
        path = tmp_path / "bin/all_reduce_perf"
        copy = f'for file; do :; done\ncp {tmp_path}/document "$file"\n'
        path.write_text(path.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{copy}"))
        assert result(at, "NCCL: one rank").status == status
    path.write_text(path.read_text().replace("cp ", "true "))
    assert "missing" in result(at, "NCCL: one rank").detail


def test_all_gpus_of_a_node_are_a_figure_with_a_floor(tmp_path: Path) -> None:
    program(tmp_path, "all_reduce_perf", eight_ranks(475.10))
    found = result(bench(tmp_path, 8), "NCCL: all-reduce")
    (figure,), (curve,) = found.figures, found.curves
    assert curve.points == ((8, 0.0), (64, 0.0), (16 << 30, 475.1))
    assert (figure.test, figure.value, figure.size, figure.ranks) == ("node_allreduce_busbw", 475.1, 16 << 30, 8)
    (part,) = result(bench(tmp_path, 8, gpus=16), "NCCL: all-reduce").figures  # half of the GPUs of a node
    assert part.test == ""


def test_fewer_ranks_than_gpus_are_a_failure(tmp_path: Path) -> None:
    program(tmp_path, "all_reduce_perf", eight_ranks(475.10))
    found = result(bench(tmp_path, 4), "NCCL: all-reduce")
    assert (found.status, found.detail) == (FAIL, "all_reduce_perf: 8 ranks took part, and 4 were started")


def test_a_program_that_the_image_does_not_have_is_not_run(tmp_path: Path) -> None:
    for name in ("NCCL: one rank", "bandwidth between two GPUs"):
        found = result(bench(tmp_path, 2), name)
        assert (found.status, "is not in the image" in found.detail) == (NOT_RUN, True)
    assert result(bench(tmp_path, layers=("cuda",), versions={}), "sweep: nccl").detail == "the image has no torch"


@pytest.mark.parametrize(("version", "reason"), [("2.28.9", "NCCL 2.28.9"), ("", "unknown version")])
def test_two_ranks_on_one_gpu_need_a_nccl_that_can(version: str, reason: str, tmp_path: Path) -> None:
    found = result(bench(tmp_path, versions={"nccl": version} if version else {}), "NCCL: two ranks on one GPU")
    assert found.status == NOT_RUN and reason in found.detail


def test_outside_of_the_image_its_nccl_and_its_recipes_are_not_checked(tmp_path: Path) -> None:
    at = bench(tmp_path, checks=({"name": "mine", "command": "true", "expect": ""},))
    assert result(at, "mine").status == PASS
    at.outside = True
    for name in ("mine", "NCCL: two ranks on one GPU", "NCCL: two ranks over sockets"):
        found = result(at, name)
        assert found.status == NOT_RUN and "outside of the image" in found.detail


def test_a_kernel_without_its_line_failed(tmp_path: Path) -> None:
    case = next(iter(CASES))
    line = KERNEL + json.dumps({"case": case, "compared": "x"})
    assert parse_kernel(line, case) == (True, "x")
    for text in ("", line[:-2], line.replace(case, "other"), KERNEL + json.dumps({"case": case, "error": "no image"})):
        assert not parse_kernel(text, case)[0]
    at = bench(tmp_path)
    at.own = (sys.executable, "-c", f"import os; assert os.environ['CUDA_DISABLE_PTX_JIT'] == '1'; print({line!r})")
    assert result(at, f"kernel: {case}").status == PASS
    at.own = (sys.executable, "-c", "")
    assert result(at, f"kernel: {case}").status == FAIL


def test_bandwidth_of_the_host_is_that_of_the_slowest_copy(tmp_path: Path) -> None:
    text = recorded("nvbandwidth.txt", {"device_to_device_memcpy_write_ce": "device_to_host_memcpy_ce"})
    program(tmp_path, "nvbandwidth", text)
    (figure,) = result(bench(tmp_path), "bandwidth between host").figures
    assert (figure.test, figure.value) == ("host_device_bandwidth", 55.28)
    program(tmp_path, "nvbandwidth", recorded("nvbandwidth.txt"))  # only one of the two tests
    assert result(bench(tmp_path), "bandwidth between host").status == FAIL


def test_bandwidth_of_the_host_without_nvbandwidth_is_that_of_torch(tmp_path: Path) -> None:
    at = bench(tmp_path)
    line = COPIES + json.dumps({"to_device": 55.0, "to_host": 53.5, "size": 1 << 30})
    at.own = (sys.executable, "-c", f"print({line!r})")
    (figure,) = result(at, "bandwidth between host").figures
    assert figure.value == 53.5
    at.own = (sys.executable, "-c", f"print({line[:-3]!r})")
    assert result(at, "bandwidth between host").status == FAIL


def test_ucx_without_its_transports_for_gpus_fails(tmp_path: Path) -> None:
    program(tmp_path, "ucx_info", recorded("ucx-info.txt"))
    assert "cuda_ipc" in result(bench(tmp_path), "UCX").detail
    program(tmp_path, "ucx_info", recorded("ucx-info.txt", {"ud_mlx5": "cuda_ipc"}))
    assert result(bench(tmp_path), "UCX").status == PASS


def test_checks_of_recipes_need_their_exit_code_and_their_text(tmp_path: Path) -> None:
    check = {"name": "mine", "command": "echo 0 wrong", "expect": "^0 wrong$"}
    assert result(bench(tmp_path, checks=(check,)), "mine").status == PASS
    for change in ({"command": "echo 1 wrong"}, {"command": "echo 0 wrong; exit 1"}):
        assert result(bench(tmp_path, checks=({**check, **change},)), "mine").status == FAIL


SOCKETS = {"Using network IB": "Using network Socket", "/GDRDMA": ""}


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({}, PASS, "2 ranks"),
        ({" via NET/": " via P2P/"}, FAIL, "no path"),
        ({"Destroy COMPLETE": "Destroy"}, FAIL, "were closed"),
        ({"network Socket": "network IB"}, FAIL, "Socket was forced"),
    ],
)
def test_two_ranks_over_sockets_must_use_sockets(
    changes: dict[str, str], status: str, words: str, tmp_path: Path
) -> None:
    log = recorded("nccl-log.ib.txt", SOCKETS)
    for before, after in changes.items():
        log = log.replace(before, after)
    (tmp_path / "log").write_text(log)
    (tmp_path / "sweep").write_text(recorded("sweep.txt", {'"gloo"': '"nccl"'}))
    at = bench(tmp_path)
    script = (
        f'[ "$NCCL_NET" = Socket ] || exit 9; cp {tmp_path}/log $(dirname "$NCCL_DEBUG_FILE")/nccl.$RANK; '
        f"cat {tmp_path}/sweep"
    )
    at.own = ("/bin/sh", "-c", script)
    found = result(at, "NCCL: two ranks over sockets")
    assert found.status == status and words in found.detail


def test_an_accelerator_without_cuda_has_the_checks_of_its_recipes(tmp_path: Path) -> None:
    check = {"name": "neuron-ls", "command": "echo nc_count", "expect": "nc_count"}
    at = bench(tmp_path, 0, sm="", gpu="Trainium1", checks=(check,))
    at.devices = Devices(fault="libcuda.so.1 is missing")
    found = run_checks(at, lambda line: None)
    assert [(outcome.name, outcome.status) for outcome in found[:2]] == [
        ("neuron-ls", PASS),
        ("InfiniBand, EFA and GPUDirect RDMA", NOT_RUN),
    ]


MISSING = "n1:1:1 [0] net.cc:626 NCCL WARN Error: network envbuild-no-such-network not found.\n"


def test_a_wrong_network_must_be_named_by_the_error(tmp_path: Path) -> None:
    name = "NCCL: a network"
    program(tmp_path, "all_reduce_perf", "", log=MISSING, code=3)
    assert result(bench(tmp_path), name).status == PASS
    program(tmp_path, "all_reduce_perf", MISSING, code=3)  # without a file of its own
    assert result(bench(tmp_path), name).status == PASS
    program(tmp_path, "all_reduce_perf", "", code=3, errors="out of memory")
    assert "another reason" in result(bench(tmp_path), name).detail
    program(tmp_path, "all_reduce_perf", recorded("nccl-tests.one-gpu.txt"), log=recorded("nccl-log.ib.txt"))
    assert "in silence" in result(bench(tmp_path), name).detail


@pytest.mark.slow_unit
def test_a_program_that_hangs_with_a_wrong_network_is_ended_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is shorter here; the program and what it started are ended for real."""
    monkeypatch.setattr("envbuild.gpu.nccl_checks.NEGATIVE_LIMIT", 1.0)
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin/all_reduce_perf"
    path.write_text("#!/bin/sh\nsleep 1000 & sleep 1000\n")
    path.chmod(0o755)
    began = time.monotonic()
    found = result(bench(tmp_path), "NCCL: a network")
    assert found.status == FAIL and "hangs" in found.detail
    assert time.monotonic() - began < 30


def test_the_limit_of_the_negative_check_is_a_minute() -> None:
    assert negative.LIMIT == 60


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ([], "incomplete"),
        ([Output(code=1, errors=MISSING), Output(code=0)], "in silence"),
        ([Output(code=-9, fault="x did not end within 60 s"), Output(code=1, errors=MISSING)], "hangs"),
        ([Output(code=1, errors="segmentation fault")], "another reason"),
        ([Output(code=1, errors=MISSING), Output(code=1)], ""),
    ],
)
def test_every_rank_must_end_and_one_must_name_the_network(outputs: list[Output], words: str) -> None:
    fault = negative_fault(outputs, [parse_nccl_log("")])
    assert (words in fault) if words else not fault


def test_a_check_that_raises_another_error_is_a_defect(tmp_path: Path) -> None:
    def broken(at: Bench) -> Outcome:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_check(NodeCheck("x", broken), bench(tmp_path))


def test_devices_are_read_whole_or_not_at_all() -> None:
    gpu = '{"name": "H100", "sm": "9.0", "memory": 1}'
    line = f'envbuild-devices {{"gpus": [{gpu}], "driver": "1", "cuda": "", "fault": ""}}'
    found = parse_devices(f"warning\n{line}\n")
    assert found and found.gpus[0].sm == "9.0"
    assert [parse_devices(line[:length]) for length in (0, 20, len(line) - 1)] == [None, None, None]


def test_files_of_a_checked_program_are_not_limited(tmp_path: Path) -> None:
    """Shared memory is a file: the limit of the doctor's programs would end NCCL."""
    # The limit is set once the program runs: on a busy machine it could have ended before.
    words = ("sh", "-c", f"sleep 1; dd if=/dev/zero of={tmp_path}/shm bs=1M count=9")
    assert Programs({"PATH": "/usr/bin:/bin"}, 60).output(*words).code
    assert bench(tmp_path).run(words).code == 0
    assert job().net == ""
