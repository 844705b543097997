"""GPT-NeoX: what it needs beside it, its pins, and what is changed in its files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envbuild.spec.recipe import Recipe, RecipeEnv
from tests.support.recipes import SOURCE_ONLY, commands, recipe, stack, table

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("version", "beside", "missing"),
    [
        ("ea7aefd", {"deeperspeed": {}}, ()),
        ("ea7aefd", {}, ("the image does not have it; write deeperspeed: {version: 3.0}",)),
        ("ea7aefd", {"deepspeed": {}}, ("the image does not have it; write deeperspeed: {version: 3.0}",)),
        ("66fe501", {"deeperspeed": {"version": "eb7f5cff"}, "python-packages": SOURCE_ONLY}, ()),
        ("66fe501", {"deeperspeed": {}, "python-packages": SOURCE_ONLY}, ("write deeperspeed: {version: eb7f5cff}",)),
        (
            "66fe501",
            {"deeperspeed": {"version": "eb7f5cff"}, "python-packages": {"compiled": ["ftfy==6.0.1"]}},
            ("write python-packages: {compiled: [pathtools==0.1.2, promise==2.3, subprocess32==3.5.4]}",),
        ),
    ],
)
def test_layers_that_gpt_neox_needs(version: str, beside: dict[str, Any], missing: tuple[str, ...]) -> None:
    made = recipe("gpt-neox", version=version)
    found = made.refusals(stack(made, *(recipe(name, **options) for name, options in beside.items())))
    assert len(found) == len(missing)
    for refusal, expected in zip(found, missing, strict=True):
        assert str(refusal).endswith(expected)


def test_deeperspeed_has_the_revisions_of_gpt_neox() -> None:
    asked = {item.deeperspeed for item in table("gpt-neox").REVISIONS.values()}
    assert asked <= set(table("deeperspeed").REVISIONS)


def shell(text: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = " && ".join(text).replace("/opt/gpt-neox", str(folder))
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)


def upstream_edits(made: Recipe, env: RecipeEnv) -> list[str]:
    """Return the commands of a build that change upstream's files."""
    (step,) = [step for step in commands(made, env).split(" && \\\n    ") if "megatron/data/Makefile" in step] or [""]
    assert step
    return [part for part in commands(made, env).split(" && \\\n    ") if part.startswith(("grep -q", "sed -i"))]


def test_compiled_kernels_are_not_compiled_again_in_the_job(tmp_path: Path) -> None:
    made = recipe("gpt-neox")
    assert not upstream_edits(made, stack(made, recipe("deeperspeed")))
    changes = upstream_edits(made, stack(made, recipe("deeperspeed"), recipe("neox-kernels")))
    (tmp_path / "megatron").mkdir()
    source = tmp_path / "megatron" / "initialize.py"
    source.write_text("if fusion:\n    fused_kernels.load(neox_args)\n    fused_kernels.load_fused_kernels()\n")
    assert shell(changes, tmp_path).returncode == 0
    assert source.read_text() == "if fusion:\n    fused_kernels.load_fused_kernels()\n"
    assert shell(changes, tmp_path).returncode != 0  # no such line: another revision


def test_training_of_an_older_revision_needs_no_lm_eval(tmp_path: Path) -> None:
    made = recipe("gpt-neox", version="66fe501")
    (tmp_path / "megatron").mkdir()
    source = tmp_path / "megatron" / "training.py"
    source.write_text("import sys\nfrom eval_tasks import run_eval_harness\nprint(run_eval_harness)\n")
    assert shell(upstream_edits(made, stack(made)), tmp_path).returncode == 0
    run = subprocess.run([sys.executable, "-I", str(source)], capture_output=True, text=True, check=False)
    assert run.stdout == "None\n"


def test_pins_are_preserved_exactly() -> None:
    old = recipe("gpt-neox", version="66fe501")
    python = old.runtime(stack(old)).python
    for pin in ("numpy==1.22.0", "transformers~=4.24.0", "wandb==0.10.28", "protobuf==3.20.1"):
        assert pin in python
    assert not any(text.startswith(("cupy", "triton", "lm_eval", "flash-attn")) for text in python)


def test_gpt_neox_at_a_commit_of_the_specs_own(tmp_path: Path) -> None:
    made = recipe("gpt-neox", origin="github:example/gpt-neox", commit="0" * 40, pins=["transformers==4.38.0"])
    (refusal,) = map(str, made.refusals(stack(made)))
    assert refusal.endswith("add deeperspeed to the layers")
    env = stack(made, recipe("deeperspeed"), recipe("neox-kernels", commit="0" * 40))
    assert not made.refusals(env) and made.git.origin == "github:example/gpt-neox"
    assert "transformers==4.38.0" in made.runtime(env).python
    assert made.matrix(env) == {"protobuf": "==3.20.1"}
    (tmp_path / "megatron").mkdir()
    for file in ("initialize.py", "training.py"):
        (tmp_path / "megatron" / file).write_text("import sys\n")
    assert shell(upstream_edits(made, env), tmp_path).returncode == 0  # neither line has to be there
    assert not recipe("neox-kernels", commit="0" * 40).refusals(env)


def test_gpt_neox_has_the_programs_that_its_code_runs() -> None:
    """Without git, `import megatron.neox_arguments` ends with FileNotFoundError."""
    for version in ("ea7aefd", "66fe501", "1.0"):
        made = recipe("gpt-neox", version=version)
        assert {"git", "wget"} <= set(made.runtime(stack(made)).debian)
