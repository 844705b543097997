"""Checks of NCCL, UCC and gloo on one node: nccl-tests, sweeps of PyTorch, and a network that does not exist."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from .bench import Bench, check_output, rank_variables, read_logs
from .check_parts import good, need_layer
from .model import GPU, PASS, FailedError, Figure, NotRunError, Outcome, bandwidth_curves
from .negative import LIMIT as NEGATIVE_LIMIT
from .negative import VARIABLES, negative_fault
from .tools.nccl_json import parse_nccl_json
from .tools.nccl_tests import NcclRun, parse_nccl_tests
from .tools.sweep import parse_sweep, sweep_curves
from .transport import transport_facts, transport_faults

ONE_GPU_RANKS = (2, 30)  # NCCL with several ranks on one GPU (NCCL_MULTI_RANK_GPU_ENABLE)
MANY_ON_ONE = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4"}
SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo"}
UCC = "cpu:gloo,cuda:ucc"
WRITES_FILE = (2, 17, 4)  # nccl-tests that print their version, and know -J (since 2.17.3)
ROUNDING = 1e-3  # of a printed number
LARGEST_ONE, LARGEST_ALL = 1 << 30, 16 << 30  # bytes


def run_nccl_tests(bench: Bench, ranks: int, largest: int) -> tuple[NcclRun, Outcome]:
    """Run all_reduce_perf on GPUs of this node in one process; return the run and its result."""
    program = bench.find("all_reduce_perf")
    env, folder = bench.logged()
    words = [program, "-b", "8", "-e", str(largest), "-f", "2", "-g", str(ranks), "-c", "1"]
    file = bench.folder / f"{folder.name}.json"
    writes_file = numbers(bench.tests_version) >= WRITES_FILE
    output = bench.run([*words, "-J", str(file)] if writes_file else words, env)
    check_output(output, "all_reduce_perf")
    run = parse_nccl_tests(output.text)
    bench.tests_version = run.version
    fault = run.fault(ranks, 1) or run.wrong() or (file_fault(run, file) if writes_file else "")
    if fault:
        raise FailedError(f"all_reduce_perf: {fault}")
    logs = read_logs(folder)
    last = run.rows[-1]
    detail = f"{len(run.rows)} sizes up to {last.size} bytes, 0 wrong, NCCL {run.library or 'unknown'}"
    facts = transport_facts(logs)
    return run, good("", detail, transport=facts)


def file_fault(run: NcclRun, file: Path) -> str:
    """Return how the file of ``-J`` contradicts the printed rows, or ""."""
    other = parse_nccl_json(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else None
    if other is None:
        return "incomplete: its file of JSON is missing or truncated"
    pairs, others = run.points, other.points
    same = [size for size, _ in pairs] == [size for size, _ in others] and all(
        abs(value - others[place][1]) <= max(0.01, ROUNDING * value) for place, (_, value) in enumerate(pairs)
    )
    return other.wrong() if same else "the printed rows differ from those of its file of JSON"


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def one_rank(bench: Bench) -> Outcome:
    """Check NCCL with one rank: its results alone, because the bus bandwidth of one rank is 0."""
    _, outcome = run_nccl_tests(bench, 1, LARGEST_ONE)
    return outcome


def all_ranks(bench: Bench) -> Outcome:
    """Measure the all-reduce over all GPUs of the node."""
    if bench.gpus < 2:
        raise NotRunError("one GPU, no NVLink")
    run, outcome = run_nccl_tests(bench, bench.gpus, LARGEST_ALL)
    last = run.rows[-1]
    test = "node_allreduce_busbw" if bench.gpus == bench.job.gpus else ""
    figure = Figure(test, last.out_of_place.busbw, "GB/s", last.size, bench.gpus, 1, bench.environ.get("NCCL_ALGO", ""))
    return Outcome(
        outcome.name, GPU, PASS, f"{outcome.detail}, busbw {figure.value:g} GB/s", figures=(figure,),
        transport=outcome.transport, curves=bandwidth_curves("all_reduce", run.points),
    )  # fmt: skip


def run_sweep(
    bench: Bench, backend: str, device: str, ranks: int, env: Mapping[str, str], *, one_gpu: bool = False
) -> Outcome:
    """Run a sweep with `ranks` processes on this machine; return its result. Raises FailedError."""
    need_layer(bench, "torch")
    logged, folder = bench.logged()
    own = rank_variables(ranks, 0 if one_gpu else None)
    words = (*bench.own, "sweep", "--backend", backend, "--device", device)
    outputs = bench.run_ranks(words, [{**logged, **env, **rank} for rank in own])
    for output in outputs:
        check_output(output, f"the sweep with {backend}")
    sweep = parse_sweep(outputs[0].text)
    if fault := sweep.fault or sweep.wrong:
        raise FailedError(f"the sweep with {backend}: {fault}")
    best = max(row.busbw for row in sweep.rows)
    refused = f"; not supported: {', '.join(op for op, _ in sweep.refused)}" if sweep.refused else ""
    detail = f"{backend}, {ranks} ranks, {len(sweep.rows)} sizes, 0 wrong, at most {best:g} GB/s{refused}"
    facts = transport_facts(read_logs(folder))
    if "nccl" in backend:
        faults = transport_faults(read_logs(folder), bench.job, ranks, nodes=1, net=env.get("NCCL_NET", ""))
        if env.get("NCCL_NET") == SOCKETS["NCCL_NET"] and not facts.get("paths", {}).get("NET"):
            faults.append("no path goes over sockets")
        if faults:
            raise FailedError("; ".join(faults))
    return good("", detail, transport=facts, curves=sweep_curves(sweep))


def sweep_check(backend: str, device: str) -> Callable[[Bench], Outcome]:
    """Return the check of a sweep: one rank for each GPU, or two on the CPU."""

    def run(bench: Bench) -> Outcome:
        if backend == UCC:
            need_layer(bench, "torch-ucc")
        ranks = 2 if device == "cpu" else bench.gpus
        return run_sweep(bench, backend, device, ranks, {})

    return run


def shared_gpu_check(backend: str, env: Mapping[str, str]) -> Callable[[Bench], Outcome]:
    """Return the check of two ranks on one GPU; of NCCL that can."""

    def run(bench: Bench) -> Outcome:
        if backend == "nccl":
            need_many_ranks(bench)
        else:
            need_layer(bench, "torch-ucc")
        return run_sweep(bench, backend, "cuda", 2, env, one_gpu=True)

    return run


def need_many_ranks(bench: Bench) -> None:
    """Raise NotRunError for a NCCL that refuses several ranks on one GPU."""
    if bench.outside:
        raise NotRunError("outside of the image the NCCL is another one")
    version = bench.job.versions.get("nccl", "")
    if numbers(version)[:2] < ONE_GPU_RANKS:
        known = f"NCCL {version}" if version else "a NCCL of unknown version"
        raise NotRunError(f"{known}: two ranks on one GPU need NCCL 2.30")


def wrong_network(bench: Bench) -> Outcome:
    """Check that a wrong NCCL_NET ends a job within its limit."""
    env, folder = bench.logged()
    words: tuple[str, ...]
    try:
        words = (bench.find("all_reduce_perf"), "-b", "8", "-e", "8", "-g", "1")
    except NotRunError:
        need_layer(bench, "torch")
        words = (*bench.own, "sweep", "--backend", "nccl", "--device", "cuda", "--largest", "1024")
    output = bench.run(words, {**env, **rank_variables(1)[0], **VARIABLES}, NEGATIVE_LIMIT)
    if fault := negative_fault([output], read_logs(folder)):
        raise FailedError(fault, "NCCL_NET must be forced, and NCCL_NET_PLUGIN must not replace it")
    return good("", f"NCCL ended after {output.seconds:.0f} s and names the missing network")
