"""Checks of copies: UCX's transports for GPU memory, and the bandwidth between host memory and GPUs."""

from __future__ import annotations

from . import copies
from .bench import Bench, check_output
from .check_parts import good, need_layer
from .model import GPU, PASS, FailedError, Figure, NotRunError, Outcome
from .tools.nvbandwidth import matrix_fault, parse_nvbandwidth
from .tools.ucx import parse_ucx_info

TO_DEVICE, TO_HOST = "host_to_device_memcpy_ce", "device_to_host_memcpy_ce"
BETWEEN = "device_to_device_memcpy_write_ce"


def ucx_cuda(bench: Bench) -> Outcome:
    """Check that UCX lists its transports for GPU memory."""
    need_layer(bench, "ucx")
    output = bench.run([bench.find("ucx_info"), "-d"], limit=60)
    check_output(output, "ucx_info")
    found = {transport for transport, _ in parse_ucx_info(output.text)}
    missing = sorted({"cuda_copy", "cuda_ipc"} - found)
    if missing:
        raise FailedError(f"ucx_info -d does not list {', '.join(missing)}", "build layer ucx with layer cuda")
    return good("", f"transports: {', '.join(sorted(found))}")


def host_bandwidth(bench: Bench) -> Outcome:
    """Measure copies between host memory and the GPUs; the slowest counts."""
    try:
        program = bench.find("nvbandwidth")
    except NotRunError:
        need_layer(bench, "torch")
        output = bench.run_own("copies")
        check_output(output, "the copies of torch")
        pair = copies.parse_copies(output.text)
        if pair is None:
            raise FailedError("the copies of torch: incomplete") from None
        least, how = min(pair), "pinned memory, with torch"
    else:
        matrices = run_nvbandwidth(bench, program, TO_DEVICE, TO_HOST)
        least, how = min(matrices), "nvbandwidth"
    figure = Figure("host_device_bandwidth", least, "GB/s")
    return Outcome("", GPU, PASS, f"at least {least:g} GB/s in both directions ({how})", figures=(figure,))


def peer_bandwidth(bench: Bench) -> Outcome:
    """Measure copies between each pair of GPUs; the slowest counts."""
    if bench.gpus < 2:
        raise NotRunError("one GPU, no NVLink")
    (least,) = run_nvbandwidth(bench, bench.find("nvbandwidth"), BETWEEN)
    figure = Figure("peer_bandwidth", least, "GB/s")
    return Outcome("", GPU, PASS, f"at least {least:g} GB/s between two GPUs", figures=(figure,))


def run_nvbandwidth(bench: Bench, program: str, *tests: str) -> list[float]:
    """Return the least bandwidth of each test. Raises FailedError."""
    output = bench.run([program, "-t", *tests])
    check_output(output, "nvbandwidth")
    matrices = parse_nvbandwidth(output.text)
    for test in tests:
        if fault := matrix_fault(matrices, test):
            raise FailedError(f"nvbandwidth: {fault}")
    return [matrix.least for test in tests for matrix in matrices if matrix.test == test]
