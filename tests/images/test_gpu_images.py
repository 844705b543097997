"""The GPU images for real, without a GPU: built, audited, and what two targets share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.image_project import Cli

pytestmark = [pytest.mark.images, pytest.mark.slow]


@pytest.fixture(scope="module")
def h100(refreshed: Callable[[str], Cli]) -> dict[str, object]:
    return dict(refreshed("h100-nccl").json("make", "h100-nccl"))


@pytest.fixture(scope="module")
def a100(h100: dict[str, object], refreshed: Callable[[str], Cli]) -> dict[str, object]:
    return dict(refreshed("a100-nccl").json("make", "a100-nccl"))


def passed(made: dict[str, object]) -> set[str]:
    evidence = yaml.safe_load(Path(str(made["evidence"])).read_text())
    assert evidence["tiers"]["audit"] == "passed"
    assert evidence["tiers"]["run"] == "passed"
    assert evidence["tiers"]["gpu"].startswith("not run")
    return {result["name"] for result in evidence["results"] if result["status"] == "pass"}


def test_h100_image_holds_a_kernel_for_its_gpu_and_imports(h100: dict[str, object]) -> None:
    names = passed(h100)
    assert "deepspeed: code for sm_90 and nothing else" in names
    assert "deepspeed: imports beside torch" in names
    assert "torch: two-rank all-reduce over gloo" in names


def test_a100_image_builds_only_units_of_the_gpu(a100: dict[str, object]) -> None:
    assert "deepspeed: code for sm_80 and nothing else" in passed(a100)
    assert sorted(a100["built"]) == ["deepspeed", "glue", "venv"]  # type: ignore[call-overload]
    assert sorted(a100["reused"]) == ["base", "cuda", "debian", "root-build-deepspeed", "venv-core"]  # type: ignore[call-overload]
