"""Bandwidth of copies between pinned host memory and one GPU, with PyTorch: for images without nvbandwidth."""

from __future__ import annotations

import json
import time
from importlib import import_module
from typing import Any

MARK = "envbuild-copies "
SIZE = 1 << 30
ROUNDS = 8


def main() -> int:
    """Print both directions in GB/s as a line of JSON; return the exit code."""
    torch: Any = import_module("torch")
    host = torch.zeros(SIZE, dtype=torch.uint8).pin_memory()
    device = torch.zeros(SIZE, dtype=torch.uint8, device="cuda:0")
    found = {}
    for name, target, source in (("to_device", device, host), ("to_host", host, device)):
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(ROUNDS):
            target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        found[name] = round(ROUNDS * SIZE / (time.perf_counter() - began) / 1e9, 2)
    print(MARK + json.dumps({**found, "size": SIZE}), flush=True)
    return 0


def parse_copies(text: str) -> tuple[float, float] | None:
    """Return (to the device, to the host) in GB/s; None for an incomplete text."""
    for line in text.splitlines():
        if line.startswith(MARK):
            try:
                value = json.loads(line[len(MARK) :])
                return float(value["to_device"]), float(value["to_host"])
            except (ValueError, KeyError, TypeError):
                return None
    return None
