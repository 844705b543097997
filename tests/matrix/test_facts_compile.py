"""The compiled matrix: the order of values, masks, and what rows bind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.clauses import program_of
from envbuild.matrix.facts.compile import compile_facts, pick_order
from envbuild.matrix.facts.constraint_masks import constraint_mask, have_common_value, requested_mask, unknown_versions
from envbuild.matrix.facts.evaluate import evaluate_rows
from envbuild.matrix.facts.extension import extend_table
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.model import Component
from envbuild.matrix.facts.values import parse_constraint
from tests.support.facts import VERSIONS, fact, matrix, plan, read
from tests.support.solving import solve

pytestmark = pytest.mark.unit


def test_values_are_sorted_by_preference() -> None:
    torch = Component("torch", "version", "x")
    given = ["2.8.0+cu126", "2.10.0a0+b4e4ee81d3", "2.9.0rc1", "2.8.0", "2.8.0+cu128", "2.10.0", "2.7"]
    assert pick_order(torch, given) == (
        *("2.10.0", "2.8.0", "2.7"),
        *("2.8.0+cu128", "2.8.0+cu126", "2.9.0rc1", "2.10.0a0+b4e4ee81d3"),
    )
    assert pick_order(Component("python", "version", "x"), ["3.13t", "3.12", "3.13"]) == ("3.13", "3.12", "3.13t")
    assert pick_order(Component("sm", "sm", "x"), ["9.0", "12.0", "8.6"]) == ("12.0", "9.0", "8.6")
    assert pick_order(Component("gpu", "name", "x"), ["T4", "A100", "T4"]) == ("T4", "A100")


def test_values_are_those_listed_named_exactly_or_provided(tmp_path: Path) -> None:
    facts = [
        fact("a.one", "limits", {"a": "==1.5"}, {"b": ">=2"}),
        fact("a.two", "provides", {"a": "==1.0"}, {"b": "7.1"}),
        fact("a.three", "provides", {"a": "==2.0"}, {"b": "3"}),
        fact("a.four", "limits", {"a": "*"}, {"b": "!=3.0"}),
        fact("b.five", "limits", {"b": "==3.1.0"}, {"a": "*"}),
    ]
    given = matrix(tmp_path, {"a": ["1.0", "2.0"], "b": ["3.1"]}, facts)
    assert given.values[given.number["a"]] == ("2.0", "1.5", "1.0")
    assert given.values[given.number["b"]] == ("7.1", "3.1"), "3 is met by 3.1, and 3.1.0 is 3.1"


def test_numbers_follow_ranks(tmp_path: Path) -> None:
    components = {"z": {"rank": 1, "values": ["1"]}, "a": {"rank": 9, "values": ["1"]}, "m": {"rank": 9}}
    given = matrix(tmp_path, components, [fact("a.m", "limits", {"a": "*"}, {"m": "*"})])
    assert [component.name for component in given.components] == ["z", "a", "m"]


def test_masks_and_values(tmp_path: Path) -> None:
    given = matrix(tmp_path, {"a": VERSIONS}, [fact("a.x", "limits", {}, {"a": ">1"})])
    component = given.components[0]
    assert constraint_mask(given, "a", parse_constraint(component, ">=2")) == 0b0110
    assert constraint_mask(given, "a", parse_constraint(component, "-")) == 1
    assert given.full == (0b1111,)
    assert given.values_of(0, 0b1101) == ["2.0", "1.0"]
    assert (given.value(0, 0b1010), given.value(0, 1)) == ("3.0", None)
    assert given.assignment({"a": "2.0"}) == [0b0100]
    assert given.named([0b0100]) == {"a": "2.0"}
    assert given.named([1]) == {}
    assert given.component("a") is component
    assert given.component("b") is None
    with pytest.raises(KeyError):
        given.bit("a", "4.0")


def test_a_version_includes_labelled_builds_only_if_there_are_no_others(tmp_path: Path) -> None:
    values = ["2.8.0", "2.8.0+cu126", "2.8.1", "2.9.0+cpu"]
    given = matrix(tmp_path, {"a": values}, [fact("a.x", "limits", {}, {"a": ">1"})])

    def asked(text: str) -> list[str]:
        return given.values_of(0, requested_mask(given, "a", parse_constraint(given.components[0], text)))

    assert asked("2.8.0") == ["2.8.0"]
    assert asked("2.8") == ["2.8.1", "2.8.0"]
    assert asked("==2.8.0+cu126") == ["2.8.0+cu126"]
    assert asked("2.9") == ["2.9.0+cpu"]
    assert asked("*") == ["2.8.1", "2.8.0", "2.9.0+cpu", "2.8.0+cu126"]


def test_values_without_a_fact_can_be_added(tmp_path: Path) -> None:
    facts = [
        fact("a.b", "limits", {"a": ">=2"}, {"b": "<3"}),
        fact("a.c", "limits", {"a": "==1.0"}, {"b": "<2"}, question="q"),
        fact("a.d", "limits", {"a": "<=1.5"}, {"b": "<3"}, question="q", source="issue"),
    ]
    given = matrix(tmp_path, {"a": ["1.0", "2.0"], "b": ["2.0"]}, facts, {"q": ["a", "b"]})
    component = given.components[0]
    assert unknown_versions(given, "a", parse_constraint(component, "9.9")) == ("9.9",)
    assert unknown_versions(given, "a", parse_constraint(component, "2.0")) == ()
    assert unknown_versions(given, "a", parse_constraint(component, ">=9.9")) == ("9.9",)
    assert unknown_versions(given, "a", parse_constraint(component, ">9.9")) == ()
    more = extend_table(given, {"a": ["9.9", "1.5", "2.0"], "b": ["4.0"]})
    assert more.values == (("2.0", "1.0", "9.9", "1.5"), ("2.0", "4.0"))
    assert given.values == (("2.0", "1.0"), ("2.0",)), "the matrix itself is unchanged"
    assert plan(more, "a=9.9", "b=4.0") is None
    assert plan(more, "a=1.5", "b=2.0") == {"a": "1.5", "b": "2.0"}
    assert plan(more, "a=1.5", "b=4.0") is None
    assert plan(more, "a=1.0", "b=2.0") is None
    assert extend_table(given, {"a": ["2.0"]}) is given
    again = compile_facts(read(tmp_path, {"a": ["1.0", "2.0", "9.9", "1.5"], "b": ["2.0", "4.0"]}, facts, {"q": ["a"]}))
    assert {row: claim_texts(more, row) for row in range(3)} == {row: claim_texts(again, row) for row in range(3)}


def claim_texts(given: FactTable, row: int) -> list[dict[str, set[str]]]:
    claim = row_claim(given, row)
    return [
        {given.components[at].name: set(given.values_of(at, mask)) for at, mask in part.items()}
        for part in (claim.when, claim.allowed)
    ]


def test_whether_one_value_can_meet_several_constraints(tmp_path: Path) -> None:
    components: dict[str, Any] = {"a": VERSIONS, "gpu": {"kind": "name", "values": ["H100", "A100"]}}
    given = matrix(tmp_path, components, [fact("a.x", "limits", {"gpu": "H100"}, {"a": ">1"})])

    def together(name: str, *texts: str) -> bool:
        component = given.component(name)
        assert component is not None
        return have_common_value(given, name, [parse_constraint(component, text) for text in texts])

    assert together("a", ">=1.5", "<2.5")
    assert not together("a", "1.0", "2.0")
    assert together("a", "9.9", ">=3"), "an unknown version is still a version"
    assert not together("a", "9.9", "<3")
    assert together("gpu", "H100", "*")
    assert not together("gpu", "H100", "A100")


@pytest.mark.parametrize(
    ("kind", "then", "expected"),
    [
        ("requires", ">=2", {"-": False, "1.0": False, "2.0": True, "3.0": True}),
        ("provides", "2", {"-": False, "1.0": False, "2.0": True, "3.0": False}),
        ("limits", ">=2", {"-": True, "1.0": False, "2.0": True, "3.0": True}),
        ("forbids", ">=2", {"-": True, "1.0": True, "2.0": False, "3.0": False}),
        ("forbids", "*", {"-": True, "1.0": False, "2.0": False, "3.0": False}),
        ("limits", "-", {"-": True, "1.0": False, "2.0": False, "3.0": False}),
        ("requires", ">9", {"-": True, "1.0": False, "2.0": False, "3.0": False}),
    ],
)
def test_kinds_of_facts(tmp_path: Path, kind: str, then: str, expected: dict[str, bool]) -> None:
    given = matrix(tmp_path, {"a": ["1.0"], "b": VERSIONS}, [fact("a.b", kind, {"a": "1.0"}, {"b": then})])
    program = program_of(given)
    for value, allowed in expected.items():
        mask = given.bit("b", None if value == "-" else value)
        found = solve([given.bit("a", "1.0"), mask], program.clauses, ())
        assert (found is not None) is allowed, value
        assert solve([1, mask], program.clauses, ()) is not None, "without a, the row has no effect"


def test_versions_that_cannot_be_compared_pass_with_a_note(tmp_path: Path) -> None:
    ngc = "2.10.0a0+b4e4ee81d3"
    facts = [
        fact("a.limit", "limits", {"a": "*"}, {"torch": ">=2.11"}),
        fact("a.requirement", "requires", {"a": "*"}, {"torch": ">=2.11"}),
        fact("torch.old", "forbids", {"torch": "<2.12"}, {"a": "*"}),
    ]
    given = matrix(tmp_path, {"a": ["1.0"], "torch": ["2.9.0", "2.11.0", ngc]}, facts)
    found = given.assignment({"a": "1.0", "torch": ngc})
    assert solve(found, program_of(given).clauses, ()) == found
    results = {given.fact(entry.row).id: entry for entry in evaluate_rows(given, found)}
    assert {name: (entry.fails, entry.unsure) for name, entry in results.items()} == {
        "a.limit": ((), ("torch",)),
        "a.requirement": ((), ("torch",)),
    }


def test_absence_can_be_a_condition(tmp_path: Path) -> None:
    facts = [fact("a.alone", "limits", {"a": "*", "compat": ["-", "<2"]}, {"b": ">=2"})]
    given = matrix(tmp_path, {"a": ["1.0"], "b": ["1.0", "2.0"], "compat": ["1.0", "2.0"]}, facts)
    assert plan(given, "a", "b=1.0") == {"a": "1.0", "b": "1.0", "compat": "2.0"}
    assert plan(given, "a", "b=1.0", "compat=1.0") is None
    assert plan(given, "a", "b=2.0") == {"a": "1.0", "b": "2.0"}


def test_only_hard_rows_bind(tmp_path: Path) -> None:
    facts = [
        fact(f"a.{strength}", "limits", {"a": "1.0"}, {"b": "<2"}, strength=strength)
        for strength in ("warn", "conditional", "disputed")
    ]
    given = matrix(tmp_path, {"a": ["1.0"], "b": VERSIONS}, facts)
    assert plan(given, "a", "b=3.0") == {"a": "1.0", "b": "3.0"}
    results = evaluate_rows(given, given.assignment({"a": "1.0", "b": "3.0"}))
    assert [(given.fact(entry.row).id, entry.fails) for entry in results] == [
        ("a.conditional", ("b",)),
        ("a.disputed", ("b",)),
        ("a.warn", ("b",)),
    ]
    assert [entry.row for entry in evaluate_rows(given, given.assignment({"b": "3.0"}))] == []
