"""The starter of two ranks: both run with their own number, and a failure ends the other one and is the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.build.blocks.checks import PYTHON, two_ranks_alone, two_ranks_beside_torch

pytestmark = pytest.mark.unit

PROGRAM = """
import os, pathlib, sys, time
rank = int(os.environ["RANK"])
assert os.environ["LOCAL_RANK"] == os.environ["RANK"] and int(os.environ["MASTER_PORT"])
pathlib.Path(sys.argv[1], f"began-{rank}-of-{os.environ['WORLD_SIZE']}").touch()
"""
WAITS = PROGRAM + "time.sleep(60)\npathlib.Path(sys.argv[1], 'waited').touch()\n"


TORCH = "threads = []\ndef set_num_threads(number): threads.append(number)\n"  # in the place of torch


def run(folder: Path, program: str, shared: bool) -> tuple[int, list[str]]:
    path, seen = folder / "program.py", folder / "seen"
    (folder / "torch.py").write_text(TORCH)
    path.write_text(program.replace("sys.argv[1]", repr(str(seen))) if shared else program)
    seen.mkdir()
    command = two_ranks_alone(str(path), options=str(seen))
    if shared:
        command = two_ranks_beside_torch("x", str(path), "").command
    command = command.replace(PYTHON, sys.executable).replace("/tmp/ranks.py", str(folder / "ranks.py"))
    done = subprocess.run(["/bin/sh", "-c", command], check=False, env={**os.environ, "PYTHONPATH": str(folder)})
    return done.returncode, sorted(entry.name for entry in seen.iterdir())


@pytest.mark.parametrize("shared", [False, True])
def test_both_ranks_run(shared: bool, tmp_path: Path) -> None:
    assert run(tmp_path, PROGRAM, shared) == (0, ["began-0-of-2", "began-1-of-2"])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("failure", ["sys.exit(3)", "os.abort()"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_failure_ends_the_other_rank(rank: int, failure: str, shared: bool, tmp_path: Path) -> None:
    begun = "while len(os.listdir(sys.argv[1])) < 2: time.sleep(0.01)"
    program = WAITS.replace("time.sleep(60)", f"{begun}\nif rank == {rank}: {failure}\ntime.sleep(60)")
    assert run(tmp_path, program, shared) == (1, ["began-0-of-2", "began-1-of-2"])
