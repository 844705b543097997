"""DeeperSpeed: with which torch it runs, and its requirements."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.recipes import commands, exported, recipe, stack

pytestmark = pytest.mark.unit


def test_deeperspeed_refuses_incompatible_layers() -> None:
    made = recipe("deeperspeed")
    assert not made.refusals(stack(made, torch="1.13.1"))
    assert not recipe("deeperspeed", ops=[]).refusals(stack(torch="2.15"))
    for options, torch, other, why in (
        ({}, "2.14.1", (), "C++17"),
        ({"version": "eb7f5cff"}, "2.0.1", (), "torch._six"),
        ({"version": "eb7f5cff"}, "1.12.1", ("deepspeed",), "has the same Python package"),
    ):
        made = recipe("deeperspeed", **options)
        (refusal,) = map(str, made.refusals(stack(made, *(recipe(name) for name in other), torch=torch)))
        assert why in refusal


def test_deeperspeed_imports_where_no_gpu_is(tmp_path: Path) -> None:
    made = recipe("deeperspeed")
    (tmp_path / "accelerator").mkdir()
    source = tmp_path / "accelerator" / "cuda_accelerator.py"
    source.write_text("class A:\n    def f(self):\n        major, _ = torch.cuda.get_device_capability()\n")
    (edit,) = [part for part in commands(made, stack(made)).split(" && \\\n    ") if part.startswith("sed -E")]
    subprocess.run(["/bin/sh", "-c", edit], cwd=tmp_path, check=True)
    assert source.read_text().endswith(".get_device_capability() if self.is_available() else (0, 0)\n")


def test_deeperspeed_at_a_commit_of_the_specs_own() -> None:
    made = recipe("deeperspeed", commit="0" * 40, release="0.17.0")
    env = stack(made, torch="2.15")  # whether it compiles there is not known here
    assert not made.refusals(env)
    assert made.sources(env).gives == ("deepspeed==0.17.0",) and made.sources(env).git[0].tag == ""
    assert "pydantic>=2.0.0" in made.runtime(env).python
    assert exported(made, env)["DS_ACCELERATOR"] == "cuda"


def test_the_fork_and_deepspeed_have_the_same_requirements() -> None:
    """3.0 is made of DeepSpeed 0.16.5."""
    new, fork = recipe("deepspeed"), recipe("deeperspeed")
    assert set(new.runtime(stack(new)).python) == set(fork.runtime(stack(fork)).python) - {"setuptools<82"}
