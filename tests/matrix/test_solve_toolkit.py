"""The CUDA toolkit that compiles what a request needs: it satisfies the whole, also where the request names none."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from envbuild.matrix import FACTS
from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.verdict import Answer
from envbuild.matrix.facts.reachability import reachable_components
from envbuild.matrix.solve.query import Query
from envbuild.matrix.solve.request import parse_request
from tests.support.examples import examples
from tests.support.shipped_facts import shipped_matrix

pytestmark = [pytest.mark.unit, pytest.mark.slow_unit]

WITHOUT_NVCC = {"torch-ucc", "deepspeed"}  # C++ alone; imported without its ops, which a job may never compile


def extensions() -> list[str]:
    groups: dict[str, Any] = yaml.safe_load((FACTS / "rule.yaml").read_text())["groups"]
    return list(groups["extensions"])


def ask(words: str) -> Answer:
    return check(shipped_matrix(), parse_request(words.split(), shipped_matrix()))


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        ("flash-attn=2.6.3 torch=2.8.0 gpu=B200", "flash-attn.arch-code"),
        ("transformer-engine=2.4.0 torch=2.11.0 gpu=H100", "transformer-engine.cuda-13"),
        ("torch=2.3.0 channel=source gpu=B200", "torch.source-sm"),
    ],
)
def test_without_a_toolkit_that_satisfies_the_whole_it_is_a_conflict(words: str, fact: str) -> None:
    answer = ask(words)
    assert answer.verdict == "conflict"
    assert fact in answer.facts
    assert any(name.endswith("-toolkit") or name.endswith(".toolkit") for name in answer.facts)


@pytest.mark.parametrize(
    ("words", "toolkit"),
    [
        ("flash-attn=2.8.3 torch=2.8.0 gpu=H100", "12.8"),
        ("transformer-engine=2.4.0 torch=2.8.0 gpu=H100", "12.8"),
        ("apex=25.09 torch=2.8.0 gpu=H100", "12.8"),
        ("torch=2.8.0 channel=source gpu=H100", "12.9"),
    ],
)
def test_the_toolkit_that_was_found_is_listed(words: str, toolkit: str) -> None:
    answer = ask(words)
    assert answer.exit_code == 0
    assert answer.chosen["cuda"] == toolkit


@pytest.mark.parametrize("name", [name for name in extensions() if name not in WITHOUT_NVCC])
def test_every_extension_calls_for_a_toolkit(name: str) -> None:
    assert shipped_matrix().number["cuda"] in reachable_components(
        shipped_matrix(), [name, "torch", "channel", "torch-cuda"]
    )


@given(st.integers(0, 1 << 30))
@examples(60)
def test_no_plan_is_possible_without_a_toolkit_that_none_completes(seed: int) -> None:
    choice, matrix = random.Random(seed), shipped_matrix()
    torch = [value for value in matrix.values[matrix.number["torch"]] if "+" not in value]
    name = choice.choice([one for one in extensions() if one != "torch-ucc"])
    version = choice.choice(matrix.values[matrix.number[name]])
    gpu = choice.choice(["B200", "H100", "A100", "V100", "T4"])
    words = [f"{name}={version}", f"torch={choice.choice(torch)}", f"gpu={gpu}"]
    assert has_plan(words) is has_plan([*words, "cuda"]), words


def has_plan(words: list[str]) -> bool:
    return Query.of(shipped_matrix(), parse_request(words, shipped_matrix()), ()).plan is not None
