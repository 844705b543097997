"""The checks of one node with GPUs, in their order: each returns its result, or raises why it did not run or failed.

What one GPU cannot show is a check that does not run, with the reason."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from .bench import Bench, check_output
from .check_parts import good, need_layer
from .copy_checks import host_bandwidth, peer_bandwidth, ucx_cuda
from .kernels import CASES, NO_JIT, parse_kernel
from .model import FAIL, GPU, NOT_RUN, FailedError, Job, NotRunError, Outcome
from .nccl_checks import MANY_ON_ONE, SOCKETS, UCC, all_ranks, one_rank, shared_gpu_check, sweep_check, wrong_network

# What no check of one node shows: name → why. The tier fabric shows the rest of it.
BEYOND_ONE_NODE = {
    "InfiniBand, EFA and GPUDirect RDMA": "one node, no fabric",
    "topology file, CPU masks and NICs of other nodes": "one node, no fabric",
}
BEYOND_ONE_GPU = {"NVLink and NVSwitch": "one GPU, no NVLink"}


class NodeCheck(NamedTuple):
    """A check: its name, its function, and whether it needs a GPU."""

    name: str
    run: Callable[[Bench], Outcome]
    on_gpu: bool = True


def gpus(bench: Bench) -> Outcome:
    """Compare the GPUs with those of the target; fewer do not fail: each check states what it needs."""
    job, found = bench.job, bench.devices.gpus
    names = sorted({gpu.name for gpu in found})
    if len(names) > 1:
        raise FailedError(f"different GPUs in one node: {', '.join(names)}", "set CUDA_VISIBLE_DEVICES to equal ones")
    if job.sm and found[0].sm != job.sm:
        hint = "envbuild doctor; use an image of a target with these GPUs"
        raise FailedError(f"{names[0]} has compute capability {found[0].sm}, and the image is for {job.sm}", hint)
    of = f" of {job.gpus}" if job.gpus and job.gpus != len(found) else ""
    detail = (
        f"{len(found)}{of} x {names[0]}, compute capability {found[0].sm}, driver {bench.devices.driver or 'unknown'}"
    )
    return good("GPUs", f"{detail}, CUDA {bench.devices.cuda}")


def kernel_check(case: str) -> Callable[[Bench], Outcome]:
    """Return the check of one case of `kernels`."""

    def run(bench: Bench) -> Outcome:
        need_layer(bench, CASES[case][0])
        output = bench.run_own("kernels", case, env=NO_JIT)
        right, detail = parse_kernel(output.text, case)
        if not right or output.fault:
            hint = "envbuild verify NAME --tier audit lists the libraries without code for this GPU"
            raise FailedError(output.fault or detail, hint)
        return good(f"kernel: {case}", f"{detail}; PTX JIT off")

    return run


def recipe_check(check: Mapping[str, str]) -> Callable[[Bench], Outcome]:
    """Return a check that a recipe of the image declares: exit code 0 and `expect` in the output."""

    def run(bench: Bench) -> Outcome:
        if bench.outside:
            raise NotRunError("outside of the image")
        output = bench.run(["/bin/sh", "-c", check["command"]])
        check_output(output, check["name"])
        text = output.text + output.errors
        if not re.search(check["expect"], text, re.MULTILINE):
            last = " / ".join(text.strip().splitlines()[-3:])[:300]
            raise FailedError(f"no match for {check['expect']!r} in the output: {last}")
        return good("", "exit code 0, as its recipe expects")

    return run


def run_check(check: NodeCheck, bench: Bench) -> Outcome:
    """Return the result of a check under its name; a check that raises failed, or did not run."""
    try:
        found = check.run(bench)
    except NotRunError as reason:
        return Outcome(check.name, GPU, NOT_RUN, str(reason))
    except FailedError as error:
        hint = str(error.args[1]) if len(error.args) > 1 else ""
        return Outcome(check.name, GPU, FAIL, str(error.args[0]), hint)
    return replace(found, name=check.name)


def node_checks(job: Job) -> Iterator[NodeCheck]:
    """Yield the checks, and those that the recipes of the image declare: these alone for accelerators without CUDA."""
    yield from cuda_checks() if job.sm else ()
    for check in job.checks:
        yield NodeCheck(check["name"], recipe_check(check), on_gpu=bool(job.sm))


def cuda_checks() -> Iterator[NodeCheck]:
    """Yield the checks of NVIDIA GPUs."""
    yield NodeCheck("GPUs", gpus)
    for case in CASES:
        yield NodeCheck(f"kernel: {case}", kernel_check(case))
    yield NodeCheck("NCCL: one rank computes the right results", one_rank)
    yield NodeCheck("NCCL: all-reduce over all GPUs of the node", all_ranks)
    yield NodeCheck("NCCL: two ranks on one GPU", shared_gpu_check("nccl", MANY_ON_ONE))
    yield NodeCheck("NCCL: two ranks over sockets", shared_gpu_check("nccl", {**MANY_ON_ONE, **SOCKETS}))
    yield NodeCheck("NCCL: a network that does not exist is an error", wrong_network)
    yield NodeCheck("sweep: nccl", sweep_check("nccl", "cuda"))
    yield NodeCheck("sweep: ucc", sweep_check(UCC, "cuda"))
    yield NodeCheck("UCC: two ranks on one GPU", shared_gpu_check(UCC, {}))
    yield NodeCheck("sweep: gloo on the CPU", sweep_check("gloo", "cpu"), on_gpu=False)
    yield NodeCheck("UCX: transports for GPU memory", ucx_cuda)
    yield NodeCheck("bandwidth between host and GPU", host_bandwidth)
    yield NodeCheck("bandwidth between two GPUs", peer_bandwidth)


def run_checks(bench: Bench, report: Callable[[str], object]) -> list[Outcome]:
    """Return the results of all checks, and what they cannot show. `report`: gets a line before each."""
    checks = list(node_checks(bench.job))
    fault = bench.devices.fault
    outcomes = []
    for number, check in enumerate(checks, 1):
        if fault and check.on_gpu:
            outcomes.append(Outcome(check.name, GPU, NOT_RUN, f"no GPU: {fault}"))
            continue
        report(f"{number} of {len(checks)}: {check.name}")
        began = time.monotonic()
        outcomes.append(replace(run_check(check, bench), seconds=round(time.monotonic() - began, 1)))
    missing = {**(BEYOND_ONE_GPU if bench.gpus < 2 and bench.job.sm else {}), **BEYOND_ONE_NODE}
    if bench.gpus == 1:
        missing = dict.fromkeys(missing, "one GPU, no fabric")
    return [*outcomes, *(Outcome(name, GPU, NOT_RUN, why) for name, why in missing.items())]
