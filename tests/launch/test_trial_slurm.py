"""Steps of the tier fabric on a real Slurm of two nodes: the program arrives by standard input, and ranks report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from envbuild.gpu.fabric_checks import RECIPE, SWEEP, WRONG, Step, judge_step
from envbuild.gpu.model import FAIL, PASS, Outcome
from envbuild.gpu.negative import VARIABLES
from envbuild.gpu.script import single_file
from envbuild.launch.clients import Clients
from envbuild.launch.launch import Prepared, load_form
from envbuild.launch.trial import run_trial, step_trial
from envbuild.spec.launch_profile import Launch
from envbuild.spec.target import Target
from tests.support.gpu_bench import job, torch_python
from tests.support.launching import site, torch_image
from tests.support.slurm_cluster import Cluster, slurm_cluster

pytestmark = pytest.mark.clients

NODES = Target(name="small", gpu="A100 80GB", sm="8.0", gpus=2, launch=Launch(cpus_per_task=2))
JOB = job(gpus=2, fabric="none", target="small")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with slurm_cluster() as found:
        yield found


@pytest.fixture
def clients(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return the cluster, whose clients are started by envbuild itself."""
    for name, value in cluster.env.items():
        monkeypatch.setenv(name, value)
    return cluster


def run(step: Step, python: str = sys.executable, ranks: int = 2) -> Outcome:
    """Run a step without a container: the Slurm of this machine may have no pyxis."""
    image = torch_image(target="small", env={})
    prepared = Prepared(load_form("srun"), image, NODES, Clients(site().slurm))
    trial = step_trial(step, prepared, site(), 2, root=True)
    lines = [line for line in trial.text.splitlines() if "-container-" not in line]
    text = "\n".join(lines).replace("/opt/venv/bin/python", python).replace("MASTER_ADDR=$h", "MASTER_ADDR=127.0.0.1")
    ended = run_trial(replace(trial, text=text), "srun", single_file(JOB, "test"))
    assert not ended.fault
    return judge_step(step, ended.documents, JOB, ranks, 2)


def test_ranks_of_two_nodes_report_their_output(clients: Cluster) -> None:
    command = 'echo "node $SLURM_NODEID of $SLURM_NNODES"; seq 3000'
    step = Step("mine", RECIPE, ("/bin/sh", "-c", command), one=True, expect="^node [01] of 2$")
    assert run(step).status == PASS
    assert run(replace(step, expect="^node 0 of 2$")).status == FAIL
    assert run(replace(step, words=("/bin/sh", "-c", f"{command}; exit $SLURM_NODEID"))).status == FAIL


def test_a_program_that_hangs_on_two_nodes_is_ended(clients: Cluster) -> None:
    step = Step("wrong", WRONG, ("/bin/sh", "-c", "sleep 1000 & sleep 1001"), VARIABLES, 2.0, one=True)
    outcome = run(step)
    assert outcome.status == FAIL and "hangs" in outcome.detail


def test_a_sweep_with_gloo_over_two_nodes(clients: Cluster) -> None:
    words = ("own", "sweep", "--backend", "gloo", "--largest", "4096")
    outcome = run(Step("sweep", SWEEP, words, one=True), torch_python())
    assert outcome.status == PASS, outcome.detail
    assert "30 sizes, 0 wrong" in outcome.detail
