"""Steps of several nodes, and the result of each from what its ranks report."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.gpu.fabric_checks import ALL_REDUCE, LARGEST, Step, fabric_steps, judge_step
from envbuild.gpu.model import FAIL, PASS, Outcome
from envbuild.gpu.rank import run_rank
from envbuild.gpu.tools.nccl_log import parse_nccl_log
from tests.support.gpu_bench import IB_LOG, bench, job, rank_document, recorded
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit

JOB = job(gpus=2, net="IB", layers=("torch", "torch-ucc", "nccl-tests", "perftest"))
STEPS = {step.kind: step for step in reversed(fabric_steps(JOB, 2, "mlx5_0", mpi=True))}
RUN = recorded("nccl-tests.two-nodes.txt")


def judged(step: Step, documents: list[dict[str, Any]], ranks: int = 4) -> Outcome:
    return judge_step(step, {item["rank"]: item for item in documents}, JOB, ranks, 2)


def test_an_all_reduce_over_two_nodes_is_a_figure_with_its_transport() -> None:
    outcome = judged(STEPS["nccl-tests"], [rank_document(rank, RUN) for rank in range(4)])
    assert outcome.status == PASS
    (figure,) = outcome.figures
    assert (figure.test, figure.value, figure.ranks, figure.nodes) == ("two_node_allreduce_busbw", 471.22, 4, 2)
    assert outcome.transport["networks"] == {"IB": 4}
    (curve,) = outcome.curves
    assert curve.points[-1] == (figure.size, figure.value) and len(curve.points) == 3


@pytest.mark.parametrize(
    ("rank", "changes", "words"),
    [
        (0, {"text": RUN.partition("# Out of")[0]}, "incomplete"),
        (0, {"text": RUN.replace("471.22       0", "471.22       9")}, "9 wrong values"),
        (0, {"text": RUN.replace("17179869184", "17179869185")}, "were requested"),
        (3, {"code": 1, "errors": "NCCL WARN x"}, "rank 3: nccl-tests failed with exit code 1"),
        (3, {"code": -9, "fault": "all_reduce_perf did not end within 900 s"}, "did not end"),
        (1, {"logs": []}, "3 logs of NCCL for 4 ranks"),
        (2, {"logs": [asdict(replace(IB_LOG, networks=("Socket",)))]}, "IB was forced"),
        (3, {"node": 0}, ""),
    ],
)
def test_one_bad_rank_is_a_failure(rank: int, changes: dict[str, Any], words: str) -> None:
    documents = [rank_document(number, **{"text": RUN, **(changes if number == rank else {})}) for number in range(4)]
    outcome = judged(STEPS["nccl-tests"], documents)
    assert (outcome.status == FAIL and words in outcome.detail) if words else outcome.status == PASS


def test_ranks_that_did_not_report_or_ran_on_one_node_are_a_failure() -> None:
    documents = [rank_document(rank, RUN) for rank in range(4)]
    assert "3 of 4 ranks" in judged(STEPS["nccl-tests"], documents[:3]).detail
    assert "1 nodes" in judged(STEPS["nccl-tests"], [{**item, "node": 0} for item in documents]).detail


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("# Rank 0 Pid 1 on h device 0 [x] a" + " " * 190_000 + "b", FAIL),  # a rank more than the job has
        ("NCCL INFO Using network " + " " * 190_000 + "b", PASS),
    ],
)
def test_a_long_line_of_a_hostile_image_takes_no_time(line: str, status: str) -> None:
    """Where each blank may be the last, a line of 80,000 took 40 s."""
    with ends_within(60):
        run = [rank_document(rank, f"{RUN}\n{line}") for rank in range(4)]
        assert judged(STEPS["nccl-tests"], run).status == status
        bad = [rank_document(rank, line, code=1) for rank in range(4)]
        assert judged(STEPS["wrong network"], bad).status == FAIL


@pytest.mark.parametrize("length", range(len(RUN.splitlines()) - 2))
def test_a_truncated_output_never_passes(length: int) -> None:
    text = "".join(RUN.splitlines(keepends=True)[:length])
    assert judged(STEPS["nccl-tests"], [rank_document(rank, text) for rank in range(4)]).status == FAIL


def test_a_sweep() -> None:
    text = recorded("sweep.txt")
    found = judged(STEPS["sweep"], [rank_document(rank, text) for rank in range(4)])
    assert found.status == PASS
    assert {curve.title: curve.points for curve in found.curves} == {
        "all_reduce float32": ((1024, 0.0005), (4096, 0.0035), (16384, 0.0058)),
        "all_to_all bfloat16": ((1024, 0.0006), (4096, 0.0016), (16384, 0.0108)),
    }
    wrong = text.replace('"wrong": 0', '"wrong": 1', 1)
    assert judged(STEPS["sweep"], [rank_document(rank, wrong) for rank in range(4)]).status == FAIL
    end = text.partition('envbuild-sweep {"end"')[0]
    assert judged(STEPS["sweep"], [rank_document(rank, end) for rank in range(4)]).status == FAIL


@pytest.mark.parametrize(
    ("lanes", "status"),
    [(["tcp/eth0", "tcp/lo"], FAIL), (["rc_mlx5/mlx5_0:1", "tcp/eth0"], PASS), ([], PASS)],
)
def test_ucc_over_tcp_alone_is_a_fault_where_there_is_infiniband(lanes: list[str], status: str) -> None:
    text = recorded("sweep.txt", {'"gloo"': '"cpu:gloo,cuda:ucc"'})
    (step,) = [step for step in fabric_steps(JOB, 2, "mlx5_0", mpi=True) if step.name.endswith("ucc")]
    outcome = judged(step, [rank_document(rank, text, lanes=lanes) for rank in range(4)])
    assert outcome.status == status and outcome.transport.get("ucx", []) == sorted(lanes)


def test_a_wrong_network_ends_all_ranks() -> None:
    missing = asdict(parse_nccl_log(recorded("nccl-log.missing.txt")))
    good = [rank_document(rank, code=1, logs=[missing]) for rank in range(4)]
    assert judged(STEPS["wrong network"], good).status == PASS
    assert "in silence" in judged(STEPS["wrong network"], [*good[:3], rank_document(3)]).detail
    hanging = rank_document(3, code=-9, fault="x did not end within 60 s")
    assert "hangs" in judged(STEPS["wrong network"], [*good[:3], hanging]).detail


def test_the_client_of_perftest_connects_to_the_first_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.gpu.rank.SERVER_START", 0.0)
    found = {}
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
        at = bench(tmp_path / str(number))
        at.environ = {**at.environ, "SLURM_PROCID": str(number), "MASTER_ADDR": "node1"}
        named, document = run_rank(at, ("echo", "-d", "mlx5_0"), 10.0, "pair")
        found[named] = document["text"]
    assert found == {0: "-d mlx5_0\n", 1: "-d mlx5_0 node1\n"}


def test_perftest_is_read_from_its_client() -> None:
    server, client = (rank_document(rank, node=rank) for rank in (0, 1))
    client["text"] = recorded("perftest.gbits.txt")
    outcome = judged(STEPS["pair"], [server, client], 2)
    assert outcome.figures[0].value == 387.39 and outcome.figures[0].test == "ib_write_bandwidth_gdr"
    client["text"] = client["text"].rstrip().rpartition("\n")[0]
    assert judged(STEPS["pair"], [server, client], 2).status == FAIL


def test_a_check_of_a_recipe_needs_its_text_on_each_node() -> None:
    step = Step("mine", "recipe", ("/bin/sh", "-c", "x"), one=True, expect="^efa$")
    documents = [rank_document(rank, node=rank, text="efa\n") for rank in range(2)]
    documents[1]["text"] = "efa\n"
    assert judged(step, documents, 2).status == PASS
    documents[1]["text"] = "tcp\n"
    assert judged(step, documents, 2).status == FAIL


def test_steps_that_an_image_or_a_fabric_does_not_have_state_the_reason() -> None:
    bare = fabric_steps(job(layers=(), versions={}, fabric="efa"), 2, "", mpi=False)
    assert all(step.reason for step in bare)
    steps = fabric_steps(JOB, 3, "mlx5_0", mpi=True)
    assert [step.name for step in steps if step.reason] == ["perftest: ib_write_bw between GPUs of two nodes"]
    without = {step.kind: step.reason for step in fabric_steps(JOB, 2, "", mpi=False)}
    assert "site.yaml" in without["pair"] and "no MPI" in without["nccl-tests"]
    assert ALL_REDUCE[4] == str(LARGEST)
