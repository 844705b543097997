"""The doctor in a step of a real Slurm, and outside of one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from envbuild.doctor.model import Need
from envbuild.doctor.script import single_file
from tests.support.slurm_cluster import slurm_cluster

pytestmark = pytest.mark.clients


def test_a_step_of_slurm_is_a_compute_node(tmp_path: Path) -> None:
    script = tmp_path / "doctor.py"
    script.write_text(single_file(Need(), "1.0"))
    with slurm_cluster() as cluster:
        lines = cluster.run("srun", "-N1", "-n1", sys.executable, "-I", str(script), "--json", check=False)
        data, _ = json.JSONDecoder().raw_decode(lines[lines.index("{") :])
        results = {row["check"]: row for row in data["results"]}
    assert data["facts"]["place"] == "compute node"
    assert data["facts"]["programs"]["slurm"]
    assert results["slurm-node"]["status"] == "pass"
    assert "2 GPUs" in results["slurm-gpus"]["detail"]  # of any two files
    assert results["pyxis"]["status"] in ("pass", "fail", "not-run")  # the last without enroot and pyxis
