"""Conflicts in answers: their reasons, and changes that work and add nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envbuild.matrix.facts.fact_table import FactTable
from tests.support.facts import fact, matrix
from tests.support.matrix_answers import COMPONENTS, FACTS, QUESTIONS, ask
from tests.support.matrix_answers import small as small
from tests.support.shipped_facts import shipped_matrix

pytestmark = pytest.mark.unit


def test_a_conflict_names_facts_requests_and_a_fix(small: FactTable) -> None:
    (conflict,) = ask(small, "torch=2.0.1 gpu=H100").conflicts
    assert [one.fact for one in conflict.reasons] == ["torch.gpu"]
    assert {one.text for one in conflict.asks} == {"torch==2.0.1", "H100"}
    assert conflict.minimal
    assert conflict.fixes[0] in ("torch>=2.1", "torch=2.1.0")


def test_a_dispute_shows_both_sides(small: FactTable) -> None:
    given = ask(small, "nccl=2.18.1 gpu=H100")
    assert {one.fact for one in given.disputes} == {"nccl.old", "nccl.new"}


def test_nothing_is_added_to_get_around_a_fact(small: FactTable) -> None:
    """With the package compat the driver would be sufficient; only the user can decide that."""
    assert ask(small, "cuda=12.1 driver=470.10").verdict == "conflict"
    assert ask(small, "cuda=12.1 driver=470.10 compat=12.1").verdict != "conflict"


def test_a_fix_does_not_add_components_that_were_not_requested(small: FactTable) -> None:
    """CUDA 12.1 would do on that driver with the package compat, which the fix does not name."""
    assert ask(small, "cuda=11.8 driver=470.10").conflicts[0].fixes == ("driver>=525",)


def test_a_component_that_nothing_requires_explains_no_conflict(tmp_path: Path) -> None:
    """The package compat, which one base contains, would not help; that is an answer for users who have that base."""
    base = {"kind": "name", "values": ["plain", "full"], "rank": 5, "cost": 5}
    facts = [
        *FACTS,
        fact("base.compat", "provides", {"base": "full"}, {"compat": "12.1"}),
        fact("compat.driver", "limits", {"compat": "*"}, {"driver": ">=480"}),
        fact("cuda.base", "requires", {"cuda": "12", "ucx": "*"}, {"base": "*"}),
    ]
    given = matrix(tmp_path, {**COMPONENTS, "base": base}, facts, QUESTIONS)

    def cited(words: str) -> set[str]:
        (conflict,) = ask(given, words).conflicts
        return {one.fact for one in conflict.reasons}

    assert cited("cuda=12.1 driver=470.10") == cited("cuda=12.1 driver=470.10 base=plain") == {"cuda.driver"}
    assert cited("base=full driver=470.10") == {"base.compat", "compat.driver"}
    assert ask(given, "cuda=12.1 driver=470.10").conflicts[0].fixes == ("driver>=525",)


def test_a_component_that_other_hardware_requires_explains_no_conflict(tmp_path: Path) -> None:
    """The package compat comes with torch on a V100 only: of another GPU the reasons do not exclude it."""
    facts = [
        *FACTS,
        fact("gpu.compat", "requires", {"gpu": "V100", "torch": "*"}, {"compat": "12.1"}),
        fact("compat.gpu", "limits", {"compat": "*"}, {"gpu": "V100"}),
        fact("torch.cuda", "requires", {"torch": "2.2"}, {"cuda": "12.1"}),
    ]
    given = matrix(tmp_path, COMPONENTS, facts, QUESTIONS)
    (conflict,) = ask(given, "torch=2.2.0 gpu=A100 driver=470.10").conflicts
    assert {one.fact for one in conflict.reasons} == {"torch.cuda", "cuda.driver"}


@pytest.mark.parametrize(
    "words, clause",
    [
        (
            "vllm gpu=H100",
            "each build of torch==2.6.0 (2.6.0, +cu118) contains no code for H100 [torch.index] [torch.cu118]",
        ),
        (
            "vllm driver=470",
            "no build of torch==2.6.0 fits (torch==2.6.0 works with driver==535 only [torch.driver-cu118]; "
            "torch==2.6.0 works with driver==525 only [torch.driver])",
        ),
    ],
)
def test_what_excludes_each_build_of_a_release_is_one_clause(tmp_path: Path, words: str, clause: str) -> None:
    """Joined by "and" one torch would be built for two versions of CUDA."""
    builds = {"values": ["2.6.0", "2.6.0+cu118"], "cost": 3, "shown": "{name}=={value}"}
    components = {**COMPONENTS, "vllm": ["1.0"], "torch": builds, "driver": ["470", "525", "535"]}
    because = "contains no code for {gpu}"
    facts = [
        fact("vllm.torch", "requires", {"vllm": "*"}, {"torch": "2.6.0"}),
        fact("torch.index", "limits", {"torch": "==2.6.0"}, {"gpu": "A100"}, because=f"the wheel {because}"),
        fact(
            "torch.cu118",
            "limits",
            {"torch": "==2.6.0+cu118"},
            {"gpu": "A100"},
            because=f"the build for CUDA 11.8 {because}",
        ),
        fact("torch.driver", "limits", {"torch": "==2.6.0"}, {"driver": "525"}),
        fact("torch.driver-cu118", "limits", {"torch": "==2.6.0+cu118"}, {"driver": "535"}),
    ]
    (conflict,) = ask(matrix(tmp_path, components, facts), words).conflicts
    assert conflict.text.startswith(f"Because {clause} and vllm")


@pytest.mark.parametrize(
    "words, fixes",
    [
        ("pyxis=0.21.0 enroot=3.5.0 pyxis-option=use_enroot_load", ["enroot>=4.0"]),
        ("instance=p5.48xlarge arch=arm64", ["arch=amd64", "instance=p6e-gb200"]),
    ],
)
def test_the_nearest_change_is_first_and_has_no_needless_second(words: str, fixes: list[str]) -> None:
    """Another option does something else; another instance is of no use beside another architecture."""
    (conflict,) = ask(shipped_matrix(), words).conflicts
    assert list(conflict.fixes) == fixes


def test_a_cause_of_several_reasons_is_stated_once() -> None:
    """torch, and three libraries that its wheel pins, have no code for a P100."""
    (conflict,) = ask(shipped_matrix(), "torch=2.15.0 gpu=P100").conflicts
    text = " ".join([conflict.text, *conflict.also])
    assert text.count("P100 needs code for sm_60 [gpu.sm]") == text.count("cannot run on P100") == 1
    assert all(f"[{one.fact}]" in text for one in conflict.reasons if not one.default)
    assert len(conflict.also) == 1


def test_one_of_many_builds_that_nothing_names_is_no_reason() -> None:
    """Each torch of PyTorch's index for a CUDA would do as well."""
    (conflict,) = ask(shipped_matrix(), "flash-attn=2.8.3 gpu=T4").conflicts
    text = " ".join([conflict.text, *conflict.also])
    assert "compiles no code for sm_75" in text
    assert "torch is a build of" not in text


def test_rows_of_one_fact_that_differ_in_a_word_are_one_clause() -> None:
    (conflict,) = ask(shipped_matrix(), "flash-attn=2.8.3 gpu=V100 torch=2.6.0").conflicts
    text = " ".join([conflict.text, *conflict.also])
    assert text.count("compiles no code for sm_70 with CUDA <11.8, >=11.8,<12.8 or >=12.8 [flash-attn.arch-code]") == 1
    assert text.count("flash-attn.arch-code") == 1


def test_one_of_many_versions_is_an_example() -> None:
    (conflict,) = ask(shipped_matrix(), "gpu=Trainium1 torch-neuronx torch=2.10.0").conflicts
    assert "torch-neuronx==2.9 needs torch==2.9, for example [neuron.torch]" in conflict.text
    (other,) = ask(shipped_matrix(), "gpu=K80 cuda>=12").conflicts  # true of each row: no example
    assert "CUDA >=12 compiles no machine code for sm_37 [cuda.ptxas-targets]" in other.text


def test_a_fix_of_one_of_two_conflicts_names_what_the_other_needs(tmp_path: Path) -> None:
    components = {**COMPONENTS, "os": {"values": ["1", "2"], "cost": 5}, "lib": {"values": ["1.0", "2.0"]}}
    facts = [
        *FACTS,
        fact("lib.os", "limits", {"lib": "2.0"}, {"os": "2"}),
        fact("os.cuda", "limits", {"os": "*"}, {"cuda": "*"}),
    ]
    pairs = [{"of": [["os", "lib"], "*"], "independent": "made up"}]
    given = matrix(tmp_path, components, facts, QUESTIONS, pairs=pairs)
    found = ask(given, "cuda=12.1 driver=470.10 lib=2.0 os=1").conflicts
    fixes = [fix for conflict in found for fix in conflict.fixes]
    assert len(found) == 2
    assert fixes
    for fix in fixes:
        changed = dict(word.split("=") for word in ["cuda=12.1", "driver=470.10", "lib=2.0", "os=1"])
        words = []
        for change in re.split(" with |, also needs ", fix):
            changed.pop(re.split("[<>=]", change.removeprefix("leave "))[0].split()[0])
            words += [] if change.startswith("leave ") else [change]
        asked = " ".join([*words, *(f"{name}={value}" for name, value in changed.items())])
        assert ask(given, asked).verdict not in ("conflict", "unknown"), fix


EXCLUSIVE = [
    ("550.54.15", ">=580", "requires", "conflict"),
    ("550.54.15", ">=580", "limits", "conflict"),
    ("<550", ">=580", "requires", "conflict"),
    ("550.54.15", "550.54.16", "requires", "conflict"),
    ("550.54.15", "<580", "requires", "valid"),
    (">=700", "<580", "requires", "conflict"),
    (">=700", "<580", "limits", "unknown"),  # no such driver is known: that is not valid without one
]


@pytest.mark.parametrize(("one", "other", "kind", "verdict"), EXCLUSIVE)
def test_two_requirements_that_exclude_each_other_are_a_conflict(
    tmp_path: Path, one: str, other: str, kind: str, verdict: str
) -> None:
    components = {"base": ["1.0"], "torch": ["2.0"], "driver": {"values": ["600", "590", "550", "535"], "rank": 90}}
    facts = [
        fact("base.driver", "requires", {"base": "*"}, {"driver": one}),
        fact("torch.driver", kind, {"torch": "*", "base": "*"}, {"driver": other}),
    ]
    given = matrix(tmp_path, components, facts)
    assert ask(given, "base torch").verdict == verdict
    if verdict == "conflict":
        ids = {reason.fact for conflict in ask(given, "base torch").conflicts for reason in conflict.reasons}
        assert ids == {"base.driver", "torch.driver"}
