"""The sweep and the whole program, run for real: gloo on the CPU, without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from envbuild.gpu.bench import Bench, rank_variables
from envbuild.gpu.driver import Devices
from envbuild.gpu.main import write_file
from envbuild.gpu.model import FAIL, GPU, NOT_RUN, PASS, Outcome
from envbuild.gpu.node_checks import run_checks
from envbuild.gpu.parts import read_parts
from envbuild.gpu.script import single_file
from envbuild.gpu.sealed import evidence_document, read_document
from tests.support.command import ROOT
from tests.support.gpu_bench import job, torch_python
from tests.support.tools import require_tools

PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
OLDEST = [str(path) for path in PYENV.glob("versions/3.8.*/bin/python")] or ["python3.8"]  # else skipped, by name
PYTHONS = [sys.executable, "/usr/bin/python3", *OLDEST]


def run_script(folder: Path, python: str, **values: object) -> dict[str, object]:
    """Run the program of one file with a Python of its own; return the evidence."""
    script = folder / "checks.py"
    script.write_text(single_file(job(**values), "test"))
    run = [python, "-I", str(script), "node", "-o", str(folder / "evidence.json")]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    found, _ = read_document((folder / "evidence.json").read_text())
    return found


@pytest.mark.unit
@pytest.mark.slow_unit
@pytest.mark.parametrize("python", PYTHONS)
def test_the_program_of_one_file_runs_without_envbuild(python: str, tmp_path: Path) -> None:
    if not Path(python).exists():
        pytest.skip(f"{python} is not installed")
    found = run_script(tmp_path, python, layers=(), versions={})
    results = found["results"]
    assert isinstance(results, list)
    if found["place"]["gpus"]:  # type: ignore[index]
        pytest.skip("this machine has a GPU")
    assert {item["status"] for item in results} == {NOT_RUN}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checks.py", "evidence.json"]


@pytest.mark.unit
@pytest.mark.slow_unit
def test_mistakes_of_the_command_line_are_errors(tmp_path: Path) -> None:
    script = tmp_path / "checks.py"
    script.write_text(single_file(job(layers=(), versions={}), "test"))
    for words, text in ((["nod"], "invalid choice"), (["node", "-o", "/nonexistent/x"], "cannot be written")):
        done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr


@pytest.mark.clients
def test_a_sweep_with_gloo_on_two_ranks(tmp_path: Path) -> None:
    at = cpu_bench(tmp_path, torch_python())
    outcomes = {outcome.name: outcome for outcome in run_checks(at, lambda line: None)}
    counts = Counter(outcome.status for outcome in outcomes.values())
    sweep = outcomes["sweep: gloo on the CPU"]
    assert (sweep.status, counts[PASS], counts[FAIL]) == (PASS, 1, 0), sweep.detail
    assert "gloo, 2 ranks, 105 sizes, 0 wrong" in sweep.detail


@pytest.mark.clients
def test_a_rank_that_ends_early_is_a_failure(tmp_path: Path) -> None:
    """The other rank waits for it, and is ended at its limit, or by the error of gloo."""
    at = cpu_bench(tmp_path, torch_python())
    ranks = rank_variables(2)
    words = (*at.own, "sweep", "--backend", "gloo", "--largest", "1024")
    (alone,) = at.run_ranks(words, ranks[:1], limit=40)
    assert alone.code != 0 and "envbuild-sweep" not in alone.text


@pytest.mark.unit
@pytest.mark.parametrize(("statuses", "code"), [((PASS, NOT_RUN), 0), ((PASS, FAIL), 7), ((NOT_RUN,), 0)])
def test_the_exit_code_states_whether_a_check_failed(statuses: tuple[str, ...], code: int, tmp_path: Path) -> None:
    outcomes = [Outcome(f"check {number}", GPU, status, "x") for number, status in enumerate(statuses)]
    document = evidence_document(job(), outcomes, "2026-01-02T03:04:05Z", "test", {})
    (tmp_path / "other").write_text("mine")
    (tmp_path / "evidence.json").symlink_to("other")  # another user can have put it there
    assert write_file(str(tmp_path / "evidence.json"), document, outcomes) == code
    assert (tmp_path / "other").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evidence.json", "other"]
    assert read_document((tmp_path / "evidence.json").read_text())[1] == tuple(outcomes)


MPI = """\
#include <mpi.h>
#include <stdio.h>
int main(void) {
  int rank, size, sum;
  MPI_Init(0, 0);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d, sum %d\\n", rank, size, sum);
  return MPI_Finalize();
}
"""


@pytest.mark.clients
def test_a_program_with_mpi_starts_below_the_program_of_its_rank(tmp_path: Path) -> None:
    require_tools("mpicc", "mpirun")
    (tmp_path / "all.c").write_text(MPI)
    (tmp_path / "checks.py").write_text(single_file(job(), "test"))
    subprocess.run(["mpicc", "-o", "all", "all.c"], cwd=tmp_path, check=True)
    words = [sys.executable, "checks.py", "rank", "--", "./all"]
    start = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", *words]
    done = subprocess.run(start, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    found, _ = read_parts(done.stdout, 3)
    assert {rank: item["text"] for rank, item in found.items()} == {
        rank: f"rank {rank} of 3, sum 3\n" for rank in range(3)
    }


def cpu_bench(folder: Path, python: str) -> Bench:
    """Return a bench on this machine, with no GPU, whose parts run in a Python with PyTorch."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    devices = Devices(fault="not queried")
    return Bench(job(layers=("torch",)), (python, "-m", "envbuild.gpu"), folder, environ, devices)


@pytest.mark.unit
def test_the_job_is_part_of_the_program() -> None:
    text = single_file(job(image="mine"), "1.2")
    assert "'image': 'mine'" in text and "VERSION = '1.2'" in text
