"""Properties of the verdict over the shipped facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envbuild.matrix.answer.check import check
from envbuild.matrix.facts.compile import compile_facts
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.request import parse_request
from tests.support.shipped_facts import shipped_facts, shipped_matrix

pytestmark = [pytest.mark.unit, pytest.mark.slow_unit]

CONFLICTS = ["gpu=H100 torch=2.0.1", "torch=2.8.0 nccl=2.20.5", "cuda=12.8 driver=470.256.02", "cuda=11.8 gcc=13"]
UNRELATED = ["hydra-core", "omegaconf", "protobuf", "setuptools", "libfabric=2.6.0", "ucx"]


def verdict(given: FactTable, words: str) -> str:
    return check(given, parse_request(words.split(), given)).verdict


@pytest.mark.parametrize("words", CONFLICTS)
def test_an_unrelated_component_resolves_no_conflict(words: str) -> None:
    assert verdict(shipped_matrix(), words) == "conflict"
    assert {verdict(shipped_matrix(), f"{words} {other}") for other in UNRELATED} == {"conflict"}


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        ("gpu=H100 torch=2.0.1", "torch.wheel-arch"),
        ("gpu=H100 torch=2.0.1", "gpu.sm"),
        ("cuda=11.8 gcc=13", "cuda.gcc-max"),
        ("cuda=13.0 gpu=V100", "cuda.ptxas-targets"),
        ("gpu=H100 hydra-core=1.3.8 neuron-sdk=2.28.1", "neuron.accelerators"),
        ("torch=2.8.0 python=3.8", "torch.python-tags"),
    ],
)
def test_less_knowledge_is_never_better(words: str, fact: str) -> None:
    """Without a fact, what was a conflict or unknown is not valid."""
    assert fact in shipped_facts().facts
    assert verdict(shipped_matrix(), words) in ("conflict", "unknown")
    less = replace(shipped_facts(), facts={name: one for name, one in shipped_facts().facts.items() if name != fact})
    assert verdict(compile_facts(less), words) in ("conflict", "unknown")
