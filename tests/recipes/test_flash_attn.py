"""FlashAttention: which GPUs it is compiled for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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


@pytest.mark.parametrize(
    ("torch", "base", "taken"),
    [
        ("2.1.2", "ubuntu:22.04", ["77.0.3", "81.0.0"]),
        ("2.2.2", "ubuntu:22.04", ["77.0.3", "81.0.0", "84.2.1"]),
        ("2.15", "debian:13", ["77.0.3", "81.0.0", "84.2.1"]),
    ],
)
def test_a_torch_that_imports_pkg_resources_is_compiled_against_with_it(
    torch: str, base: str, taken: list[str]
) -> None:
    """torch.utils.cpp_extension of torch 2.1 and older imports it, and setuptools 82 no longer has it."""
    made = recipe("flash-attn", version="2.5.6")
    env = image(made, recipe("torch", version=torch), base=base)
    (text,) = (text for text in made.sources(env).python if text.startswith("setuptools"))
    found = Requirement(text).specifier
    assert [number for number in ("69.5.1", "77.0.3", "81.0.0", "84.2.1") if number in found] == taken
