"""Answers to requests, on small facts: the five verdicts, waivers, defaults, and why something is not newer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.matrix.answer.not_newer import explain_not_newer
from envbuild.matrix.answer.report import answer_data, answer_text
from envbuild.matrix.facts import cache
from envbuild.matrix.facts.compile import compile_facts, load_fact_table
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.load import load_facts
from envbuild.matrix.solve.request import parse_request
from tests.support.facts import fact, matrix, write
from tests.support.matrix_answers import COMPONENTS, FACTS, QUESTIONS, ask
from tests.support.matrix_answers import small as small
from tests.support.shipped_facts import shipped_matrix

pytestmark = pytest.mark.unit


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
        ("runtime=5.0", "module 1.1 to 1.2 or 1.4"),
    ],
)
def test_a_host_needs_what_is_known_to_work_where_facts_list_it(tmp_path: Path, words: str, need: str) -> None:
    """The only bound excludes very old ones; others that no fact lists are unknown."""
    tested = {"1.0": "==1.1", "2.0": ["==1.2", "==1.3"], "3.0": ["==1.3", "==1.4"], "5.0": ["==1.1", "==1.2", "==1.4"]}
    facts = [
        fact("module.oldest", "limits", {"runtime": "*"}, {"module": ">1.0"}, scope="container-start"),
        fact(
            "module.tested",
            "limits",
            [({"runtime": at, "module": one}, {}) for at, one in tested.items()],
            question="starts",
        ),
    ]
    components = {"runtime": ["1.0", "2.0", "3.0", "4.0", "5.0"], "module": ["1.0", "1.1", "1.2", "1.3", "1.4"]}
    given = matrix(tmp_path, components, facts, {"starts": ["runtime", "module"]})
    assert [one.text for one in ask(given, words).needs] == [need]
    assert [one.text for one in ask(given, words, "module.tested").needs] == ["module>1.0"]


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
