"""A sweep of PyTorch's collectives over message sizes: one rank of it. It computes, compares and measures.

Each rank is a process with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Bus bandwidth: NVIDIA/nccl-tests,
doc/PERFORMANCE.md; with one rank it is 0.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any

from .tools.sweep import MARK

FACTORS: dict[str, Callable[[int], float]] = {  # operation: bus bandwidth / algorithm bandwidth, of n ranks
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0 if n > 1 else 0.0,
}
DTYPES = ("float32", "float16", "bfloat16")
TYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
TIME_LIMIT = 60  # seconds that one operation may wait for the other ranks
ITERATIONS = 10
# Messages of torch and UCC for an operation or a type that a backend does not have; any other error is a failure.
UNSUPPORTED = re.compile(
    r"not (?:yet )?(?:supported|implemented)|unsupported|does not support|Cannot use ReduceOp", re.I
)


def main(arguments: Sequence[str]) -> int:
    """Run one rank; return its exit code."""
    parser = argparse.ArgumentParser(prog="sweep")
    parser.add_argument("--backend", required=True)
    parser.add_argument("--device", default="cpu", help="cpu, cuda (by LOCAL_RANK), or cuda:N")
    parser.add_argument("--smallest", type=int, default=1 << 10)
    parser.add_argument("--largest", type=int, default=1 << 22)
    options = parser.parse_args(arguments)

    torch: Any = import_module("torch")  # of the image; envbuild itself does not need it
    dist: Any = import_module("torch.distributed")
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if options.device == "cuda" else options.device
    device = torch.device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(options.backend, rank=rank, world_size=ranks, timeout=timedelta(seconds=TIME_LIMIT))
    head = {"backend": options.backend, "ranks": ranks, "device": device.type, "torch": torch.__version__}
    if device.type == "cuda":
        head["gpu"] = torch.cuda.get_device_name(device)
    emit(rank, head)
    rows = 0
    for op in FACTORS:
        for dtype in DTYPES:
            size = options.smallest
            while size <= options.largest:
                try:
                    row = measure(torch, dist, op, dtype, size, device)
                except (RuntimeError, NotImplementedError, ValueError) as error:
                    if "CUDA error" in str(error) or not UNSUPPORTED.search(str(error)):
                        raise
                    emit(rank, {"op": f"{op} {dtype}", "refused": (str(error).splitlines() or [""])[0][:200]})
                    break
                emit(rank, row)
                rows += 1
                size *= 4
    emit(rank, {"end": rows})
    dist.barrier()
    dist.destroy_process_group()
    return 0


def emit(rank: int, value: dict[str, Any]) -> None:
    """Print a line, once for all ranks."""
    if rank == 0:
        print(MARK + json.dumps(value), flush=True)


def measure(torch: Any, dist: Any, op: str, dtype: str, size: int, device: Any) -> dict[str, Any]:
    """Run one operation with messages of `size` bytes; return its row, with the wrong values of all ranks. Raises
    RuntimeError if the backend does not have it."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    kind = getattr(torch, dtype)
    count = max(size // TYPES[dtype] // ranks, 1) * ranks
    part = count // ranks
    # Small whole numbers, which every type adds without rounding; each rank and each place has another one.
    values = ((torch.arange(count, device=device) + rank) % 5).to(kind)

    def of(other: int) -> Any:
        return (torch.arange(count, device=device) + other) % 5

    whole = sum(of(other) for other in range(ranks))
    target = torch.empty_like(values)
    small = torch.empty(part, dtype=kind, device=device)
    mine = slice(rank * part, (rank + 1) * part)
    blocks = [(torch.arange(part, device=device) + other) % 5 for other in range(ranks)]
    runs: dict[str, tuple[Callable[[], object], Callable[[], Any], Any]] = {
        "all_reduce": (lambda: dist.all_reduce(target), lambda: target, whole),
        "broadcast": (lambda: dist.broadcast(target, 0), lambda: target, of(0)),
        "all_gather": (lambda: dist.all_gather_into_tensor(target, values[:part]), lambda: target, torch.cat(blocks)),
        "reduce_scatter": (lambda: dist.reduce_scatter_tensor(small, values), lambda: small, whole[mine]),
        "all_to_all": (
            lambda: dist.all_to_all_single(target, values),
            lambda: target,
            torch.cat([of(other)[mine] for other in range(ranks)]),
        ),
    }
    run, result, expected = runs[op]
    target.copy_(values)
    run()
    synchronize(torch, device)
    # One all-reduce of float32 collects the wrong values: every backend has it, and it was the first to be compared.
    wrong = (result().to(torch.float32) != expected.to(torch.float32)).sum().to(torch.float32).reshape(1)
    dist.all_reduce(wrong)
    dist.barrier()
    began = time.perf_counter()
    for _ in range(ITERATIONS):
        run()
    synchronize(torch, device)
    seconds = (time.perf_counter() - began) / ITERATIONS
    sent = count * TYPES[dtype]
    algbw = sent / seconds / 1e9
    return {
        "op": op, "dtype": dtype, "size": sent, "seconds": round(seconds, 9), "algbw": round(algbw, 4),
        "busbw": round(algbw * FACTORS[op](ranks), 4), "wrong": int(wrong.item()),
    }  # fmt: skip


def synchronize(torch: Any, device: Any) -> None:
    """Wait for the GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
