"""A bench without a GPU: programs that print recorded outputs, and the GPUs that they were recorded on."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from envbuild.gpu.bench import Bench
from envbuild.gpu.driver import Device, Devices
from envbuild.gpu.model import Job
from envbuild.gpu.tools.nccl_log import parse_nccl_log

TEXTS = Path(__file__).parents[1] / "gpu" / "texts"
H100 = Device("NVIDIA H100 80GB HBM3", "9.0", 85 << 30)
LAYERS = ("cuda", "nccl", "torch", "torch-ucc", "ucx", "nccl-tests", "nvbandwidth")
VERSIONS = {"nccl": "2.30.7", "torch": "2.15.0"}
IB_LOG = parse_nccl_log((TEXTS / "nccl-log.ib.txt").read_text())


def job(**values: Any) -> Job:
    """Return a job for eight H100."""
    own: dict[str, Any] = {
        "image": "net",
        "lock": f"sha256:{'1' * 64}",
        "target": "h100-ib",
        "gpu": "H100 80GB HBM3",
        "sm": "9.0",
        "gpus": 8,
        "fabric": "infiniband",
        "nics": 8,
        "layers": LAYERS,
        "versions": VERSIONS,
    }
    return Job(**{**own, **values})


def bench(folder: Path, present: int = 1, **values: Any) -> Bench:
    """Return a bench with so many GPUs, whose programs are those that `program` writes into the folder."""
    (folder / "bin").mkdir(exist_ok=True)
    environ = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
    own = (sys.executable, "-c", "import sys; sys.exit('this part is not recorded')")
    devices = Devices((H100,) * present, "580.95.05", "13.0")
    runs = len(list(folder.glob("logs-*")))  # of earlier ones in the same folder
    return Bench(job(**values), own, folder, environ, devices, runs=runs)


def program(folder: Path, name: str, text: str, *, log: str = "", code: int = 0, errors: str = "") -> None:
    """Write a program that prints a recorded text, and writes a recorded log as NCCL would."""
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / name
    lines = ["#!/bin/sh", f"cat <<'END_OF_TEXT'\n{text}END_OF_TEXT"]
    if log:
        lines.append('file=$(dirname "$NCCL_DEBUG_FILE")/nccl.node.$$')
        lines.append(f"cat > \"$file\" <<'END_OF_LOG'\n{log}END_OF_LOG")
    lines += [f"echo {shlex.quote(errors)} >&2"] if errors else []
    path.write_text("\n".join([*lines, f"exit {code}", ""]))
    path.chmod(0o755)


def recorded(name: str, changes: Mapping[str, str] = {}) -> str:
    """Return a recorded text, with parts replaced."""
    text = (TEXTS / name).read_text()
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    return text


def eight_ranks(busbw: float) -> str:
    """Return the output of all_reduce_perf over eight GPUs, with this bandwidth for 16 GiB."""
    rank = "#  Rank  0 Group  0 Pid 77 on node1 device  0 [0000:0f:00] NVIDIA H100 80GB HBM3\n"
    changes = {
        "maxBytes 512": "maxBytes 17179869184",
        "         512           128": " 17179869184    4294967296",
        rank: "".join(rank.replace("Rank  0", f"Rank  {number}") for number in range(8)),
        "0.12    0.00": f"250.0  {busbw:.2f}",
    }
    return recorded("nccl-tests.one-gpu.txt", changes)


def rank_document(rank: int, text: str = "", **changes: Any) -> dict[str, Any]:
    """Return what a rank of a job on two nodes reports, as it arrives: through JSON."""
    value = {
        "rank": rank,
        "node": rank // 2,
        "words": [],
        "code": 0,
        "fault": "",
        "seconds": 3.0,
        "text": text if rank == 0 else "",
        "errors": "",
        "logs": [asdict(IB_LOG)],
        "lanes": [],
        "environment": {"NCCL_NET": "IB"},
        "devices": {"gpus": [], "driver": "", "cuda": "", "fault": ""},
        **changes,
    }
    found: dict[str, Any] = json.loads(json.dumps(value))
    return found


def torch_python() -> str:
    """Return a Python with PyTorch: this one, or the one that ENVBUILD_TEST_TORCH names. Skips without it."""
    own = os.environ.get("ENVBUILD_TEST_TORCH", "")
    if own or find_spec("torch"):
        return own or sys.executable
    pytest.skip("torch is not installed: make a venv with torch, and set ENVBUILD_TEST_TORCH to its python")
