"""FlashAttention: which GPUs it is compiled for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.recipes import commands, image, recipe

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("target", "code"), [("h100-ib", "90"), ("a100-ib", "80"), ("lambda-a6000", "80")])
def test_flash_attention_is_compiled_for_the_gpu_of_the_target(target: str, code: str) -> None:
    made = recipe("flash-attn", version="2.8.3.post2")
    env = image(made, target=target)
    text = commands(made, env)
    assert f'FLASH_ATTN_CUDA_ARCHS="{code}"' in text and 'FLASH_ATTENTION_FORCE_BUILD="TRUE"' in text
    assert f"sm_{code} and nothing else" in made.verify(env)[-1].name


def test_flash_attention_does_not_pass_over_a_standard_that_it_cannot_set(tmp_path: Path) -> None:
    made = recipe("flash-attn")
    text = commands(made, image(made))
    lines = [line.strip().removesuffix(" && \\") for line in text.splitlines() if "-std=c++20" in line]
    (tmp_path / "setup.py").write_text('flags = ["-O3", "-std=c++17"]\n')
    subprocess.run(["/bin/sh", "-c", " && ".join(lines)], cwd=tmp_path, check=True)
    assert (tmp_path / "setup.py").read_text() == 'flags = ["-O3", "-std=c++20"]\n'
    (tmp_path / "setup.py").write_text('flags = ["-O3"]\n')
    assert subprocess.run(["/bin/sh", "-c", " && ".join(lines)], cwd=tmp_path).returncode == 1
