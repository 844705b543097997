"""GPT-NeoX's fused kernels: those of the code's revision, and a build file that queries no GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import ROOT, commands, recipe, stack, table

pytestmark = pytest.mark.unit
FUSED = ROOT / "recipes" / "data" / "fused_kernels" / "setup.py"


def fused(folder: Path, kernels: str) -> subprocess.CompletedProcess[str]:
    """Return the output of the build file in `folder`. Without an error it then imports torch, which is missing."""
    for name in ("a.cpp", "a_cuda.cu", "b.cpp", "b_cuda.cu"):
        (folder / name).touch()
    environment = {"PATH": os.environ["PATH"], "FUSED_KERNELS": kernels}
    command = [sys.executable, "-S", str(FUSED), "build"]  # without site-packages
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        ("a=a.cpp,a_cuda.cu", "this commit has kernels that nobody asked for: b_cuda.cu"),
        ("a=a.cpp,a_cuda.cu b=b.cpp,b_cuda.cu c=c.cpp,c_cuda.cu", "this commit has no c.cpp, c_cuda.cu"),
        ("a=a.cpp,a_cuda.cu b=b.cpp,b_cuda.cu", "ModuleNotFoundError"),
    ],
)
def test_a_commit_with_other_kernels_stops_the_build(kernels: str, message: str, tmp_path: Path) -> None:
    found = fused(tmp_path, kernels)
    assert found.returncode != 0
    assert message in found.stderr


def test_the_build_file_does_not_query_a_gpu() -> None:
    """GPT-NeoX's own did until 7e7c1152, and built nothing where none was."""
    assert "is_available" not in FUSED.read_text()


def word_table(text: str, name: str) -> dict[str, str]:
    """Return what a build exports as `name`: MODULE=SOURCES … as a dict."""
    (found,) = re.findall(rf'export {name}="([^"]*)"', text)
    return dict(word.split("=") for word in found.split())


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 3),
        ({"version": "66fe501"}, 2),
        ({"version": "1.0"}, 2),
        ({"commit": "0" * 40, "rope": False}, 2),
        ({"commit": "0" * 40}, 3),
    ],
)
def test_neox_kernels_of_a_revision(options: dict[str, Any], count: int) -> None:
    made = recipe("neox-kernels", **options)
    asked = word_table(commands(made, stack(made)), "FUSED_KERNELS")
    assert len(asked) == count
    assert set(asked) == set(made.extensions())
    assert asked["scaled_masked_softmax_cuda"] == "scaled_masked_softmax.cpp,scaled_masked_softmax_cuda.cu"
    if count == 3:
        assert asked["fused_rotary_positional_embedding"].endswith(",fused_rotary_positional_embedding_cuda.cu")


def test_the_kernels_are_those_of_the_code() -> None:
    code, kernels = table("gpt-neox").REVISIONS, table("neox-kernels").REVISIONS
    assert {name: (item.origin, item.commit, item.tag) for name, item in code.items()} == {
        name: (item.origin, item.commit, item.tag) for name, item in kernels.items()
    }
    (refusal,) = map(str, recipe("neox-kernels", version="66fe501").refusals(stack(recipe("gpt-neox"))))
    assert refusal.endswith("gpt-neox is ea7aefd; write the same version for both")
    assert not recipe("neox-kernels").refusals(stack(recipe("gpt-neox")))
