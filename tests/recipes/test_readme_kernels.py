"""The second example of recipes/README.md: a CUDA wheel with a submodule and a patch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envbuild.build.blocks import hpccm
from envbuild.core.yaml_parser import parse
from envbuild.core.yaml_reader import Reader
from envbuild.spec.recipe_loader import load_recipe
from envbuild.spec.recipe_options import read_options
from tests.support.recipes import ROOT, stack

pytestmark = pytest.mark.unit


def test_the_example_of_kernels(tmp_path: Path) -> None:
    text = (ROOT / "recipes" / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (block,) = [item for item in blocks if "class MyKernels" in item]
    (tmp_path / "my_kernels.py").write_text(block)
    (tmp_path / "my-kernels-gpu.patch").write_text("--- a/setup.py\n+++ b/setup.py\n@@ -1 +1 @@\n-a\n+b\n")
    reader = Reader()
    node = parse(f"commit: '{'1' * 40}'", "x.yaml", reader.findings)
    made = read_options(reader, load_recipe(tmp_path / "my_kernels.py"), node)
    reader.finish()
    assert made is not None
    env = stack(made)
    with hpccm.hpccm_target("amd64"):
        (step,) = hpccm.steps(made.build(env))
    assert "does not apply to github:me/my-kernels 111111111111" in step.command
    assert 'TORCH_CUDA_ARCH_LIST="9.0' in step.command
    (git,) = made.sources(env).git
    assert git.submodules == ("third_party/cutlass",) and git.left_out and "patch" in made.sources(env).debian
    assert len(made.verify(env)) == 2 and made.refusals(env) == ()
