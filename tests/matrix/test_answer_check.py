"""Answers to requests, on small facts: the five verdicts, waivers, defaults, and why something is not newer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import SpecError
from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.not_newer import explain_not_newer
from envbuild.matrix.answer.report import answer_data, answer_text
from envbuild.matrix.answer.verdict import Answer
from envbuild.matrix.facts import cache
from envbuild.matrix.facts.compile import compile_facts, load_fact_table
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.load import load_facts
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.solve.request import parse_request
from tests.support.facts import fact, matrix, write
from tests.support.shipped_facts import shipped_matrix

pytestmark = pytest.mark.unit

COMPONENTS: dict[str, Any] = {
    "gpu": {"kind": "name", "values": ["H100", "A100", "V100"], "rank": 1, "cost": 9, "shown": "{value}"},
    "arch": {"kind": "name", "values": ["amd64", "arm64"], "rank": 2, "cost": 9, "shown": "{value}"},
    "torch": {"values": ["2.0.1", "2.1.0", "2.2.0"], "rank": 10, "cost": 3, "complete": True},
    "cuda": {"values": ["11.8", "12.1"], "rank": 15, "cost": 3, "precision": 2},
    "nccl": {"values": ["2.14.3", "2.18.1"], "rank": 23, "cost": 1},
    "ucx": {"values": ["1.14.0"], "rank": 35, "cost": 1},
    "driver": {"values": ["470.10", "525.10", "535.10"], "rank": 90, "cost": 6, "exact": True},
    "compat": {"values": ["12.1"], "rank": 91, "cost": 6},
}
QUESTIONS = {"torch-gpu": ["torch", "gpu"], "nccl-gpu": ["nccl", "gpu"]}
FACTS = [
    fact("torch.gpu", "limits", [({"torch": "<2.1"}, {"gpu": "!=H100"}), ({"torch": "2.1"}, {})], question="torch-gpu"),
    fact("torch.gpu-21", "limits", {"torch": "2.1", "gpu": "*"}, {}, question="torch-gpu", asserts="compatible"),
    fact("torch.gpu-22", "limits", {"torch": "2.2", "gpu": ["H100", "A100"]}, {}, question="torch-gpu"),
    fact("torch.nccl", "provides", [({"torch": "2.1"}, {"nccl": "==2.18.1"}), ({"torch": "2.0"}, {"nccl": "2.14.3"})]),
    fact("nccl.old", "limits", {"nccl": "*"}, {"gpu": ["A100", "V100"]}, question="nccl-gpu", strength="disputed"),
    fact("nccl.new", "limits", {"nccl": "*"}, {"gpu": ["A100", "H100"]}, question="nccl-gpu", strength="disputed"),
    fact("cuda.driver", "limits", {"cuda": "12", "compat": "-"}, {"driver": ">=525"}, scope="container-start"),
    fact("cuda.driver-11", "limits", {"cuda": "11"}, {"driver": ">=525"}),
    fact("cuda.native", "limits", {"cuda": "12.1"}, {"driver": ">=530"}, strength="conditional", condition="{driver}?"),
    fact("cuda.runs", "limits", {"cuda": "*"}, {"gpu": "*"}, asserts="compatible"),
    fact("cuda.slow", "limits", {"cuda": "11"}, {"gpu": "!=H100"}, strength="warn", because="{gpu} is slow there"),
    fact("arch.default", "provides", {"cuda": "*"}, {"arch": "amd64"}, default=True, because="amd64 is meant"),
    fact("arch.gpu", "limits", {"gpu": "V100"}, {"arch": "amd64"}),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> FactTable:
    return matrix(tmp_path_factory.mktemp("facts"), COMPONENTS, FACTS, QUESTIONS)


def ask(given: FactTable, words: str, *waived: str, satisfied: tuple[str, ...] = ()) -> Answer:
    return check(given, parse_request(words.split(), given), [Waiver(name, "tried it") for name in waived], satisfied)


@pytest.mark.parametrize(
    "words, verdict, code",
    [
        ("torch=2.1.0 gpu=A100", "valid", 0),
        ("torch=2.1.0", "known", 0),
        ("torch>=2.0 torch<2.2", "known", 0),
        ("ucx", "known", 0),
        ("torch=2.0.1 gpu=H100", "conflict", 3),
        ("cuda=12.1 driver=525.10", "conditional", 0),
        ("cuda=12.1 driver=535.10", "valid", 0),
        ("cuda=12.1 driver=470.10", "conflict", 3),
        ("nccl=2.18.1 gpu=A100", "valid", 0),
        ("nccl=2.18.1 gpu=H100", "disputed", 0),
        ("cuda=11.8 gpu=H100", "valid", 0),
        ("torch=2.2.0 gpu=V100", "unknown", 9),
        ("torch=2.3.0 gpu=H100", "unknown", 9),
        ("torch=2.1.0 ucx=1.14.0", "unknown", 9),
    ],
)
def test_verdicts(small: FactTable, words: str, verdict: str, code: int) -> None:
    given = ask(small, words)
    assert (given.verdict, given.exit_code) == (verdict, code), answer_text(given, small, words)


def test_a_question_arises_only_where_its_condition_holds(tmp_path: Path) -> None:
    """Which GPUs a wheel serves is nothing to ask where there is no wheel."""
    components = {
        "torch": {"values": ["2.0.1"], "rank": 1},
        "gpu": {"kind": "name", "values": ["H100"], "rank": 2},
        "from": {"kind": "name", "values": ["index", "source"], "rank": 3},
    }
    facts = [
        fact("torch.any", "limits", {"torch": "*", "from": "*"}, {}, asserts="compatible"),
        fact("gpu.any", "limits", {"gpu": "*", "torch": "*", "from": "*"}, {}, asserts="compatible"),
    ]
    write(tmp_path, components, facts)
    path = tmp_path / "facts.yaml"
    top = json.loads(path.read_text())
    top["questions"] = {"wheel-gpu": {"of": ["torch", "gpu"], "about": "wheels", "when": {"from": ["-", "!=source"]}}}
    path.write_text(json.dumps(top))
    made = compile_facts(load_facts([tmp_path]))
    cached = tmp_path / "entry.json"
    cache.write_entry(cached, made)
    for given in (made, cache.read_entry(cached)):
        assert given is not None
        asked = {
            words: ask(given, words).verdict for words in ("torch gpu", "torch gpu from=index", "torch gpu from=source")
        }
        assert asked == {"torch gpu": "unknown", "torch gpu from=index": "unknown", "torch gpu from=source": "valid"}


def test_a_conflict_names_facts_requests_and_a_fix(small: FactTable) -> None:
    (conflict,) = ask(small, "torch=2.0.1 gpu=H100").conflicts
    assert [one.fact for one in conflict.reasons] == ["torch.gpu"]
    assert {one.text for one in conflict.asks} == {"torch==2.0.1", "H100"}
    assert conflict.minimal
    assert conflict.fixes[0] in ("torch>=2.1", "torch=2.1.0")


def test_a_dispute_shows_both_sides(small: FactTable) -> None:
    given = ask(small, "nccl=2.18.1 gpu=H100")
    assert {one.fact for one in given.disputes} == {"nccl.old", "nccl.new"}


def test_a_warning_does_not_change_the_verdict(small: FactTable) -> None:
    given = ask(small, "cuda=11.8 gpu=H100")
    assert [one.cited for one in given.warnings] == ["H100 is slow there [cuda.slow]"]


def test_a_warning_is_obeyed_where_possible(small: FactTable) -> None:
    assert ask(small, "cuda gpu=H100").chosen["cuda"] == "12.1"


def test_requirements_of_the_host_are_reported_unless_it_is_named(small: FactTable) -> None:
    given = ask(small, "cuda=12.1")
    assert [(one.fact, one.text) for one in given.needs] == [("cuda.driver", "driver>=525")]
    assert "needs on the host: driver>=525 [cuda.driver]" in answer_text(given, small, "cuda=12.1")


def test_of_the_requirements_of_the_host_the_strictest_of_all_scopes_is_reported(tmp_path: Path) -> None:
    facts = [
        *FACTS,
        fact("gpu.driver", "limits", {"gpu": "H100"}, {"driver": ">=530"}),
        fact("gpu.driver-old", "limits", {"gpu": "V100"}, {"driver": ">=470"}),
    ]
    given = matrix(tmp_path, COMPONENTS, facts, QUESTIONS)
    assert [(one.fact, one.text) for one in ask(given, "cuda=12.1 gpu=H100").needs] == [("gpu.driver", "driver>=530")]
    assert [(one.fact, one.text) for one in ask(given, "cuda=12.1 gpu=V100").needs] == [("cuda.driver", "driver>=525")]
    assert ask(given, "gpu=H100").needs == ()  # nothing of the question starts on the host


@pytest.mark.parametrize(
    ("words", "need"),
    [
        ("runtime=1.0", "module==1.1"),
        ("runtime=2.0", "module>=1.2,<=1.3"),
        ("runtime=3.0", "module>=1.3"),
        ("runtime=4.0", "module>1.0"),
    ],
)
def test_a_host_needs_what_is_known_to_work_where_facts_list_it(tmp_path: Path, words: str, need: str) -> None:
    """The only bound excludes very old ones; others that no fact lists are unknown."""
    tested = {"1.0": "==1.1", "2.0": ["==1.2", "==1.3"], "3.0": ["==1.3", "==1.4"]}
    facts = [
        fact("module.oldest", "limits", {"runtime": "*"}, {"module": ">1.0"}, scope="container-start"),
        fact(
            "module.tested",
            "limits",
            [({"runtime": at, "module": one}, {}) for at, one in tested.items()],
            question="starts",
        ),
    ]
    components = {"runtime": ["1.0", "2.0", "3.0", "4.0"], "module": ["1.0", "1.1", "1.2", "1.3", "1.4"]}
    given = matrix(tmp_path, components, facts, {"starts": ["runtime", "module"]})
    assert [one.text for one in ask(given, words).needs] == [need]
    assert [one.text for one in ask(given, words, "module.tested").needs] == ["module>1.0"]


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


def test_a_replaced_fact_is_noted_with_its_place(tmp_path: Path) -> None:
    folders = [write(tmp_path / "shipped", COMPONENTS, FACTS, QUESTIONS), tmp_path / "facts"]
    write(folders[1], {}, [fact("cuda.driver", "limits", {"cuda": "12"}, {"driver": ">=470"})])
    for _ in range(2):  # the second time from the cache
        given = load_fact_table(folders, tmp_path / "cache")
        (note,) = ask(given, "cuda=12.1 driver=535.10").notes
        assert note.startswith(f"cuda.driver is replaced by {folders[1]}/facts.yaml:")
        assert ask(given, "torch=2.1.0 gpu=A100").notes == ()


def test_a_default_is_set_aside_when_it_is_named(small: FactTable) -> None:
    assert ask(small, "cuda=12.1").chosen["arch"] == "amd64"
    given = ask(small, "cuda=12.1 arch=arm64")
    assert given.chosen["arch"] == "arm64"
    assert "arch.default" not in given.facts


def test_a_fact_can_be_waived(small: FactTable) -> None:
    given = ask(small, "torch=2.0.1 gpu=H100", "torch.gpu", "torch-gpu", "nccl-gpu")
    assert given.verdict != "conflict"
    assert [one.fact for one in given.waived] == ["torch.gpu", "torch-gpu", "nccl-gpu"]
    assert answer_data(given)["waived"][0] == {"fact": "torch.gpu", "reason": "tried it"}


def test_an_unknown_combination_can_be_waived(small: FactTable) -> None:
    assert ask(small, "torch=2.1.0 ucx=1.14.0").unknown[0].id == "unrelated"
    assert ask(small, "torch=2.1.0 ucx=1.14.0", "unrelated").verdict == "valid"


def test_a_waiver_of_nothing_is_a_mistake(small: FactTable) -> None:
    with pytest.raises(SpecError, match=r"no fact is called 'torch\.gpus'") as caught:
        ask(small, "torch=2.1.0", "torch.gpus")
    assert caught.value.exit_code == 2
    assert "torch.gpu" in caught.value.hint


def test_a_satisfied_condition_is_not_reported(small: FactTable) -> None:
    assert ask(small, "cuda=12.1 driver=525.10").conditions[0].condition == "525.10?"
    given = ask(small, "cuda=12.1 driver=525.10", satisfied=("cuda.native",))
    assert (given.verdict, given.conditions) == ("valid", ())


def test_a_version_after_the_facts_is_noted(small: FactTable) -> None:
    given = ask(small, "torch=2.3.0 gpu=H100")
    assert given.notes == ("torch 2.3.0 is newer than the facts, which end at 2.2.0 and are of 2026-11-21",)


def test_why_something_is_not_newer(small: FactTable) -> None:
    asks = parse_request(["torch=2.0.1", "nccl"], small)
    assert explain_not_newer(small, asks, "nccl") == [
        "nccl==2.18.1 is not taken, because torch==2.0.1 comes with nccl==2.14.3 [torch.nccl]."
    ]
    assert explain_not_newer(small, asks, "torch")[-1].startswith("torch==2.")
    with pytest.raises(SpecError, match="'cuda' is not part of the request"):
        explain_not_newer(small, asks, "cuda")


def test_a_pin_is_explained_by_the_version_that_is_taken_alone() -> None:
    """Not by the builds that the request also allows and that are not taken (2.15.0+cu130)."""
    matrix = shipped_matrix()
    asks = parse_request(["torch=2.15", "channel=index", "gpu=H100", "nccl"], matrix)
    lines = explain_not_newer(matrix, asks, "nccl")
    assert lines
    assert all(line.endswith("because torch==2.15.0's wheel pins nccl 2.30.7 [torch.nccl].") for line in lines)


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


def test_a_fact_of_lower_grade_yields_and_is_listed(tmp_path: Path) -> None:
    facts = [
        fact("a.read", "limits", {"a": "*"}, {"b": "<2"}, question="a-b", source="issue"),
        fact("a.measured", "limits", {"a": "*"}, {"b": ">=1"}, question="a-b"),
    ]
    given = ask(matrix(tmp_path, {"a": ["1.0"], "b": ["1.0", "2.0"]}, facts, {"a-b": ["a", "b"]}), "a b=2.0")
    assert given.verdict == "valid"
    assert [one.fact for one in given.superseded] == ["a.read"]


def test_a_known_version_is_preferred_to_a_newer_unknown_one(small: FactTable) -> None:
    """No fact covers torch 2.2.0 on a V100, so that an older one is picked for it."""
    given = ask(small, "torch gpu=V100")
    assert (given.unknown, given.chosen["torch"]) == ((), "2.1.0"), answer_text(given, small, "torch gpu=V100")


def test_an_unknown_combination_names_the_nearest_known_one(small: FactTable) -> None:
    given = ask(small, "torch=2.2.0 gpu=V100")
    assert given.verdict == "unknown"
    assert given.nearest == ("torch=2.1.0",)  # of older ones it is only stated that they do not serve an H100
