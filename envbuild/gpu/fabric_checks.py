"""The checks of several nodes: the steps of a job, and the result of each from what its ranks reported.

The ranks run `envbuild.gpu.rank`; these functions run where the job was started.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..doctor.processes import Output
from .model import FABRIC, FAIL, PASS, Curve, Figure, Job, Outcome, bandwidth_curves
from .negative import LIMIT as NEGATIVE_LIMIT
from .negative import MISSING, VARIABLES, negative_fault
from .reported import rank_logs, rank_output
from .tools.nccl_tests import parse_nccl_tests
from .tools.perftest import parse_perftest
from .tools.sweep import parse_sweep, sweep_curves
from .transport import transport_facts, transport_faults

NCCL_TESTS, SWEEP, WRONG, PAIR, RECIPE = "nccl-tests", "sweep", "wrong network", "pair", "recipe"
LARGEST = 16 << 30  # bytes
LIMIT = 900.0  # seconds of one program
ALL_REDUCE = ("all_reduce_perf", "-b", "8", "-e", str(LARGEST), "-f", "2", "-g", "1", "-c", "1")
UCC = "cpu:gloo,cuda:ucc"


@dataclass(frozen=True)
class Step:
    """One step of a job: the words of each rank, its variables, and the seconds it may take.

    `mpi`: whether MPI starts the ranks; `one`: one rank on a node. `reason`: why it does not run; empty: it does.
    """

    name: str
    kind: str
    words: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    limit: float = LIMIT
    mpi: bool = False
    one: bool = False
    expect: str = ""
    reason: str = ""


def fabric_steps(job: Job, nodes: int, device: str, *, mpi: bool) -> list[Step]:
    """Return the steps. `device`: an InfiniBand device of the nodes; `mpi`: whether the image has MPI."""
    has = {*job.layers, *job.versions}
    torch = "" if "torch" in has else "the image has no torch"
    tests = "" if "nccl-tests" in has else "the image has no nccl-tests"
    tests = tests or ("" if mpi else "the image has no MPI: its nccl-tests measure one node")
    ucc = "" if "torch-ucc" in has else "the image has no torch-ucc"
    sweep = ("own", "sweep", "--device", "cuda", "--backend")
    steps = [
        Step("NCCL: all-reduce over all nodes", NCCL_TESTS, ALL_REDUCE, mpi=True, reason=tests),
        Step("sweep over all nodes: nccl", SWEEP, (*sweep, "nccl"), reason=torch),
        Step("sweep over all nodes: ucc", SWEEP, (*sweep, UCC), reason=torch or ucc),
        Step("sweep over all nodes: gloo", SWEEP, ("own", "sweep", "--backend", "gloo"), reason=torch),
        wrong_network_step(torch, tests),
        pair_step(job, nodes, device, "" if "perftest" in has else "the image has no perftest"),
    ]
    if not job.sm:
        steps = []  # an accelerator without CUDA: what its recipes declare
    for check in job.checks:
        words = ("/bin/sh", "-c", check["command"])
        steps.append(Step(check["name"], RECIPE, words, one=True, expect=check["expect"]))
    return steps


def wrong_network_step(torch: str, tests: str) -> Step:
    """Return the negative check, with a sweep or with nccl-tests."""
    name = "NCCL: a network that does not exist is an error"
    if not torch:
        words: tuple[str, ...] = ("own", "sweep", "--device", "cuda", "--backend", "nccl", "--largest", "1024")
        return Step(name, WRONG, words, VARIABLES, NEGATIVE_LIMIT)
    return Step(name, WRONG, ("all_reduce_perf", "-b", "8", "-e", "8"), VARIABLES, NEGATIVE_LIMIT, True, reason=tests)


def pair_step(job: Job, nodes: int, device: str, missing: str) -> Step:
    """Return the check of perftest, between GPUs of two nodes."""
    name = "perftest: ib_write_bw between GPUs of two nodes"
    if job.fabric != "infiniband":
        missing = f"perftest measures InfiniBand, and the fabric is {job.fabric}"
    elif nodes != 2:
        missing = missing or "perftest measures two nodes"
    elif not device:
        missing = missing or "the names of the devices are not known: write nics: […] into site.yaml"
    words = ("ib_write_bw", "-d", device, "-F", "--report_gbits", "-s", "65536", "-n", "5000", "--use_cuda=0")
    return Step(name, PAIR, words, limit=120.0, one=True, reason=missing)


def judge_step(step: Step, documents: Mapping[int, Mapping[str, Any]], job: Job, ranks: int, nodes: int) -> Outcome:
    """Return the result of a step. documents: rank → what `run_rank` returned, of those that arrived whole."""
    seconds = max((float(item["seconds"]) for item in documents.values()), default=0.0)
    logs = [log for number in sorted(documents) for log in rank_logs(documents[number])]
    lanes = sorted({str(lane) for item in documents.values() for lane in item["lanes"]})
    facts = {**(transport_facts(logs) if logs else {}), **({"ucx": lanes} if lanes else {})}

    def failed(detail: str, hint: str = "") -> Outcome:
        return Outcome(step.name, FABRIC, FAIL, detail, hint, seconds, (), facts)

    if len(documents) != ranks:
        return failed(f"{len(documents)} of {ranks} ranks reported their end", "read the output of the job above")
    found = len({item["node"] for item in documents.values()})
    if found != nodes:
        return failed(f"the ranks ran on {found} nodes, and {nodes} were requested", "srun -N must get whole nodes")
    outputs = [rank_output(documents[number]) for number in range(ranks)]
    if step.kind == WRONG:
        fault = negative_fault(outputs, logs, step.limit)
        return (
            failed(fault) if fault else passed(step, f"all {ranks} ranks ended, for want of {MISSING}", seconds, facts)
        )
    bad = [f"rank {number}: {output.failure(step.kind)}" for number, output in enumerate(outputs) if output.code]
    bad += [
        f"rank {number}: {output.fault}" for number, output in enumerate(outputs) if output.fault and not output.code
    ]
    if bad:
        return failed("; ".join(bad[:2]), "envbuild doctor --log FILE explains a log of NCCL")
    fault, detail, figures, curves = measured(step, outputs, documents, job, ranks, nodes)
    if step.kind == NCCL_TESTS or (step.kind == SWEEP and step.words[-1] == "nccl"):
        fault = "; ".join(filter(None, [fault, *transport_faults(logs, job, ranks, nodes=nodes)]))
    if step.kind == SWEEP and step.words[-1] == UCC and job.fabric == "infiniband":
        fault = "; ".join(filter(None, [fault, tcp_fault(lanes)]))
    if fault:
        return failed(fault)
    return replace(passed(step, detail, seconds, facts), figures=figures, curves=curves)


def tcp_fault(lanes: Sequence[str]) -> str:
    """Return that UCX used TCP alone, or "". Releases of UCX that state no lanes prove nothing about it."""
    alone = lanes and all(lane.startswith("tcp/") for lane in lanes)
    return f"UCX used TCP alone: {', '.join(lanes)}" if alone else ""


def passed(step: Step, detail: str, seconds: float, facts: Mapping[str, Any]) -> Outcome:
    """Return a result that passed."""
    return Outcome(step.name, FABRIC, PASS, detail, "", seconds, (), facts)


def measured(
    step: Step, outputs: Sequence[Output], documents: Mapping[int, Mapping[str, Any]], job: Job, ranks: int, nodes: int
) -> tuple[str, str, tuple[Figure, ...], tuple[Curve, ...]]:
    """Return a fault or "", what was found, and the figures and curves of a step."""
    text = outputs[0].text
    if step.kind == NCCL_TESTS:
        run = parse_nccl_tests(text)
        if fault := run.fault(ranks, nodes, LARGEST) or run.wrong():
            return fault, "", (), ()
        algorithm = str(documents[0]["environment"].get("NCCL_ALGO", ""))
        last = run.rows[-1]
        whole = nodes == 2 and ranks == nodes * job.gpus
        test = "two_node_allreduce_busbw" if whole else ""
        figure = Figure(test, last.out_of_place.busbw, "GB/s", last.size, ranks, nodes, algorithm)
        detail = f"{len(run.rows)} sizes, 0 wrong, {ranks} ranks, busbw {figure.value:g} GB/s"
        return "", detail, (figure,), bandwidth_curves("all_reduce", run.points)
    if step.kind == SWEEP:
        sweep = parse_sweep(text)
        best = max((row.busbw for row in sweep.rows), default=0.0)
        refused = f"; not supported: {', '.join(op for op, _ in sweep.refused)}" if sweep.refused else ""
        detail = f"{len(sweep.rows)} sizes, 0 wrong, at most {best:g} GB/s{refused}"
        return sweep.fault or sweep.wrong, detail, (), sweep_curves(sweep)
    if step.kind == PAIR:
        pair = parse_perftest(outputs[1].text)
        if pair.fault:
            return f"the client: {pair.fault}", "", (), ()
        row = pair.rows[-1]
        figure = Figure("ib_write_bandwidth_gdr", round(row.average, 2), "Gb/s", row.size, 2, nodes)
        return "", f"{figure.value:g} Gb/s with {row.size} bytes over {pair.device}", (figure,), ()
    return recipe_fault(step, outputs), "exit code 0 on all nodes, as its recipe expects", (), ()


def recipe_fault(step: Step, outputs: Sequence[Output]) -> str:
    """Return which node's output does not match what the recipe expects, or ""."""
    for number, output in enumerate(outputs):
        if not re.search(step.expect, output.text + output.errors, re.MULTILINE):
            return f"rank {number}: no match for {step.expect!r} in the output"
    return ""
