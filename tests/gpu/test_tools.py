"""Parsers of benchmarks and logs: values of every form, and a text truncated at any line is never a whole one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.gpu.tools.nccl_json import parse_nccl_json
from envbuild.gpu.tools.nccl_log import parse_nccl_log
from envbuild.gpu.tools.nccl_tests import parse_nccl_tests
from envbuild.gpu.tools.nvbandwidth import matrix_fault, parse_nvbandwidth
from envbuild.gpu.tools.perftest import parse_perftest
from envbuild.gpu.tools.sweep import parse_sweep
from envbuild.gpu.tools.ucx import parse_ucx_info, used_lanes
from tests.support.command import ROOT
from tests.support.python_3_8 import check_python_3_8
from tests.support.truncation import check_truncation

pytestmark = pytest.mark.unit

TEXTS = Path(__file__).parent / "texts"


def text(name: str) -> str:
    return (TEXTS / name).read_text()


def nccl_is_whole(found: str) -> bool:
    return not parse_nccl_tests(found).fault()


def log_is_whole(found: str) -> bool:
    return not parse_nccl_log(found).fault


def nvbandwidth_is_whole(found: str) -> bool:
    matrices = parse_nvbandwidth(found)
    tests = ("host_to_device_memcpy_ce", "device_to_device_memcpy_write_ce")
    return not any(matrix_fault(matrices, test) for test in tests)


WHOLE: dict[str, Callable[[str], bool]] = {
    "nccl-tests.two-nodes.txt": nccl_is_whole,
    "nccl-tests.label.txt": nccl_is_whole,
    "nccl-tests.tag.txt": nccl_is_whole,
    "nccl-tests.old.txt": nccl_is_whole,
    "nccl-tests.one-gpu.txt": nccl_is_whole,
    "nccl-tests.json": lambda found: parse_nccl_json(found) is not None,
    "perftest.mib.txt": lambda found: not parse_perftest(found).fault,
    "perftest.gbits.txt": lambda found: not parse_perftest(found).fault,
    "nvbandwidth.txt": nvbandwidth_is_whole,
    "nccl-log.ib.txt": log_is_whole,
    "nccl-log.efa.txt": log_is_whole,
    "nccl-log.roce.txt": log_is_whole,
    "nccl-log.node.txt": log_is_whole,
    "nccl-log.missing.txt": lambda found: parse_nccl_log(found).no_network,
    # without an announced end: the names that the whole text has
    "ucx-info.txt": lambda found: len(parse_ucx_info(found)) == 3,
    "ucx-log.txt": lambda found: used_lanes(found) == ("rc_mlx5/mlx5_0:1", "tcp/eth0", "tcp/lo"),
    "sweep.txt": lambda found: not parse_sweep(found).fault,
}
END = {  # the line that completes a text; what follows it announces nothing
    "nccl-tests.two-nodes.txt": "# Avg", "nccl-tests.old.txt": "# Avg", "nvbandwidth.txt": "SUM device_to",
    "nccl-log.missing.txt": "not found", "ucx-log.txt": "0..2007",
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_a_text_truncated_at_any_line_is_incomplete(name: str) -> None:
    check_truncation(text(name), WHOLE[name], END.get(name, ""))


@pytest.mark.parametrize("name", [name for name in WHOLE if name.startswith("nccl-tests") and name.endswith("txt")])
def test_a_run_without_its_header_or_a_closing_line_is_incomplete(name: str) -> None:
    """A text may also lose lines in the middle."""
    lines = text(name).splitlines(keepends=True)
    whole = parse_nccl_tests("".join(lines))
    for number, line in enumerate(lines):
        found = parse_nccl_tests("".join(lines[:number] + lines[number + 1 :]))
        if "busbw" in line or "Out of bounds" in line or "Avg bus" in line:
            assert found.fault()
        elif "float" in line:
            assert len(found.rows) == len(whole.rows) - 1


def test_each_communicator_that_was_made_must_be_closed() -> None:
    whole = text("nccl-log.node.txt")
    (address,) = set(re.findall(r"comm (0x[0-9a-f]+) .*Destroy COMPLETE", whole))
    other = re.sub(rf"comm {address} (.*Destroy COMPLETE)", r"comm 0xffff \1", whole)
    assert other != whole and parse_nccl_log(other).fault


def test_every_text_is_tested() -> None:
    assert {path.name for path in TEXTS.iterdir()} - {"README.md"} == set(WHOLE)


def test_columns_are_found_by_their_headings() -> None:
    for name, size, busbw, in_place, ranks in (
        ("nccl-tests.two-nodes.txt", 17179869184, 471.22, 470.75, 4),
        ("nccl-tests.label.txt", 17179869184, 487.09, 487.26, 2),
        ("nccl-tests.tag.txt", 8388608, 154.05, 154.35, 0),
        ("nccl-tests.old.txt", 8589934592, 189.64, 189.45, 2),
        ("nccl-tests.one-gpu.txt", 512, 0.0, 0.0, 1),
    ):
        run = parse_nccl_tests(text(name))
        last = run.rows[-1]
        assert last.in_place
        found = (last.size, last.out_of_place.busbw, last.in_place.busbw, len(run.ranks))
        assert found == (size, busbw, in_place, ranks)
        assert run.wrong() == ""


def test_versions_and_ranks_of_nccl_tests() -> None:
    run = parse_nccl_tests(text("nccl-tests.two-nodes.txt"))
    assert (run.version, run.library, run.average) == ("2.19.6", "2.30.7+cuda13.0", 462.2)
    assert {(rank.host, rank.device, rank.gpu) for rank in run.ranks} == {
        (host, device, "NVIDIA H100 80GB HBM3") for host in ("node1", "node2") for device in (0, 1)
    }


def test_a_run_of_other_ranks_hosts_or_sizes_proves_nothing() -> None:
    run = parse_nccl_tests(text("nccl-tests.two-nodes.txt"))
    assert run.fault(ranks=4, hosts=2, largest=17179869184) == ""
    for wanted in ({"ranks": 16}, {"hosts": 1}, {"largest": 34359738368}):
        assert run.fault(**wanted)


def test_a_binary_without_mpi_is_recognised() -> None:
    """Each rank runs alone then, and prints a run of its own."""
    one = text("nccl-tests.one-gpu.txt")
    assert "no MPI" in parse_nccl_tests(one + one).fault()


def test_memory_may_reduce_the_largest_size() -> None:
    whole = text("nccl-tests.one-gpu.txt")
    reduced = whole.replace("maxBytes 512", "maxBytes 4096")
    assert parse_nccl_tests(reduced).fault()
    assert not parse_nccl_tests(reduced.replace("#  Rank", "# Reducing maxBytes to 512\n#  Rank")).fault()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("values : 0 OK", "values : 3 FAILED"),
        ("values : 0 OK", "values : 0 FAILED"),
        ("0.12    0.00      0 ", "0.12    0.00      2 "),
        ("0.02    0.00      0 ", "0.02    0.00    N/A "),
    ],
)
def test_wrong_or_unchecked_results_are_found(before: str, after: str) -> None:
    whole = text("nccl-tests.one-gpu.txt")
    assert before in whole
    assert parse_nccl_tests(whole.replace(before, after)).wrong()


def test_the_file_of_nccl_tests_has_the_same_form_without_the_environment() -> None:
    run = parse_nccl_json(text("nccl-tests.json"))
    assert run and not run.fault() and not run.wrong()
    assert (run.rows[-1].size, run.rows[-1].out_of_place.busbw) == (8589934592, 469.84)
    assert "SECRET" not in repr(run)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"version": 1', '"version": 9'),
        ('"errors": []', '"errors": ["no memory"]'),
        ('"end_time": "2026-01-01 00:01:00"', '"end_time": ""'),
        ('"nwrong": 0.0', '"nwrong": null'),
    ],
)
def test_a_file_of_an_unfinished_or_unknown_run_is_refused(before: str, after: str) -> None:
    assert before in text("nccl-tests.json")
    assert parse_nccl_json(text("nccl-tests.json").replace(before, after)) is None


def test_a_file_without_checked_results() -> None:
    run = parse_nccl_json(text("nccl-tests.json").replace('"nwrong": 0.0', '"nwrong": "nan"'))
    assert run and "not checked" in run.wrong()


def test_units_of_perftest() -> None:
    mib, gbits = (parse_perftest(text(f"perftest.{unit}.txt")) for unit in ("mib", "gbits"))
    assert mib.device == gbits.device == "mlx5_ib0"
    assert round(mib.rows[-1].average, 2) == gbits.rows[-1].average == 387.39


def test_matrices_of_nvbandwidth() -> None:
    copies, pairs = parse_nvbandwidth(text("nvbandwidth.txt"))
    assert (copies.least, pairs.least, pairs.rows[0][0]) == (55.28, 276.07, None)


def test_a_sum_that_contradicts_its_matrix_is_refused() -> None:
    wrong = text("nvbandwidth.txt").replace("55.28", "5.28")
    assert matrix_fault(parse_nvbandwidth(wrong), "host_to_device_memcpy_ce")


def test_transports_of_logs() -> None:
    ib, efa, roce, node, missing = (
        parse_nccl_log(text(f"nccl-log.{name}.txt")) for name in ("ib", "efa", "roce", "node", "missing")
    )
    assert (ib.networks, len(ib.devices), dict(ib.channels)) == (("IB",), 8, {"NET/GDRDMA": 2, "P2P": 1})
    assert (efa.networks, efa.providers) == (("Libfabric",), (("efa-direct", 32),))
    assert (roce.networks, len(roce.devices), dict(roce.channels)) == (("IBext_v8",), 2, {"NET": 1})
    assert (node.cliques, dict(node.channels), "no-device" in node.signs) == ((72,), {"MNNVL": 1, "SHM": 1}, True)
    assert missing.no_network and missing.fault and "forced-network-missing" in missing.signs


def test_lines_of_a_log_may_have_labels() -> None:
    labelled = "".join(f"3: {line}\n" for line in text("nccl-log.ib.txt").splitlines())
    assert parse_nccl_log(labelled) == parse_nccl_log(text("nccl-log.ib.txt"))


def test_transports_of_ucx() -> None:
    found = parse_ucx_info(text("ucx-info.txt"))
    assert found == (("cuda_copy", "cuda"), ("rc_mlx5", "mlx5_0:1"), ("ud_mlx5", "mlx5_0:1"))


def test_a_sweep_with_wrong_values() -> None:
    sweep = parse_sweep(text("sweep.txt"))
    assert (sweep.head["backend"], sweep.head["ranks"], sweep.wrong) == ("gloo", 2, "")
    assert "wrong values" in parse_sweep(text("sweep.txt").replace('"wrong": 0', '"wrong": 3', 1)).wrong


def test_an_operation_that_is_refused_is_a_fault_of_nccl_and_gloo_alone() -> None:
    line = 'envbuild-sweep {"op": "reduce_scatter float16", "refused": "not supported"}\n'
    whole = text("sweep.txt").replace('envbuild-sweep {"end"', line + 'envbuild-sweep {"end"')
    assert "gloo refuses reduce_scatter float16" in parse_sweep(whole).fault
    other = parse_sweep(whole.replace('"gloo"', '"cpu:gloo,cuda:ucc"'))
    assert (other.fault, other.refused) == ("", (("reduce_scatter float16", "not supported"),))


def test_the_program_has_the_syntax_of_python_3_8() -> None:
    check_python_3_8(ROOT / "envbuild" / "gpu")
