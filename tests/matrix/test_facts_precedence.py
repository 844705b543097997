"""Facts that answer one question otherwise: the better source binds, and a dispute binds as far as all agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from envbuild.matrix.facts import precedence
from envbuild.matrix.facts.clauses import program_of
from envbuild.matrix.facts.evaluate import evaluate_rows
from envbuild.matrix.facts.fact_table import FactTable
from tests.support.facts import VERSIONS, fact, matrix, plan

pytestmark = pytest.mark.unit


def conflicting_facts(tmp_path: Path, *facts: dict[str, Any]) -> FactTable:
    components: dict[str, Any] = {"a": VERSIONS, "b": VERSIONS, "arch": {"kind": "name", "values": ["amd64", "arm64"]}}
    return matrix(tmp_path, components, facts, {"q": ["a", "b"]})


def allowed(given: FactTable, *words: str, waived: Sequence[str] = ()) -> str:
    """Return the values of b that are possible beside `words`, by their first digit."""
    return "".join(value[0] for value in VERSIONS if plan(given, *words, f"b={value}", waived=waived) is not None)


def test_the_better_source_binds_where_it_has_rows(tmp_path: Path) -> None:
    given = conflicting_facts(
        tmp_path,
        fact("a.documented", "limits", {"a": ">=2"}, {"b": ">=3"}, question="q", source="upstream-docs"),
        fact("a.seen", "limits", {"a": "3.0", "arch": "amd64"}, {"b": ">=2"}, question="q"),
        fact("a.other", "limits", {"a": "3.0", "arch": "amd64"}, {"b": "<3"}),
    )
    assert allowed(given, "a=3.0", "arch=amd64") == "2"
    assert allowed(given, "a=3.0", "arch=arm64") == "3"
    assert allowed(given, "a=2.0", "arch=amd64") == "3"
    assert allowed(given, "a=3.0", "arch=amd64", waived=["a.other"]) == "23"
    # The better source waived, the other one counts again.
    assert allowed(given, "a=3.0", "arch=amd64", waived=["a.seen", "a.other"]) == "3"
    assert allowed(given, "a=3.0", "arch=amd64", waived=["a.seen"]) == ""
    results = evaluate_rows(given, given.assignment({"a": "3.0", "arch": "amd64", "b": "2.0"}))
    by_id = {given.fact(entry.row).id: (entry.fails, dict(entry.yields)) for entry in results}
    winner = next(entry.row for entry in results if given.fact(entry.row).id == "a.seen")
    assert by_id == {"a.documented": ((), {"b": winner}), "a.other": ((), {}), "a.seen": ((), {})}
    alone = evaluate_rows(given, given.assignment({"a": "3.0", "arch": "amd64", "b": "2.0"}), waived=["a.seen"])
    assert ("b",) in [entry.fails for entry in alone]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"question": ""}, id="other-question"),
        pytest.param({"source": "upstream-docs"}, id="source-no-better"),
        pytest.param({"strength": "warn"}, id="only-a-warning"),
    ],
)
def test_facts_that_do_not_compete(tmp_path: Path, change: dict[str, str]) -> None:
    seen = {"question": "q", **change}
    if not seen["question"]:
        del seen["question"]
    given = conflicting_facts(
        tmp_path,
        fact("a.documented", "limits", {"a": "3.0"}, {"b": ">=3"}, question="q", source="upstream-docs"),
        fact("a.seen", "limits", {"a": "3.0"}, {"b": ">=2"}, **seen),
    )
    assert allowed(given, "a=3.0") == "3"


def test_many_rows_of_a_better_source(tmp_path: Path) -> None:
    many = [f"{major}.{minor}" for major in range(1, 5) for minor in range(10)]
    rows = [({"a": f"=={value}", "arch": "amd64"}, {"b": ">=2"}) for value in many[:-1]]
    components: dict[str, Any] = {"a": many, "b": VERSIONS, "arch": {"kind": "name", "values": ["amd64", "arm64"]}}
    facts = [
        fact("a.seen", "limits", rows, question="q"),
        fact("a.documented", "limits", {"a": "*"}, {"b": ">=3"}, question="q", source="issue"),
    ]
    given = matrix(tmp_path, components, facts, {"q": ["a", "b"]})
    assert allowed(given, "a=1.0", "arch=amd64") == "23"
    assert allowed(given, "a=1.0", "arch=arm64") == "3"
    assert allowed(given, "a=4.9", "arch=amd64") == "3"
    assert sum(len(boxes) for boxes in given.narrowed.values()) == 2, "the boxes are put together again"


def test_boxes_less_boxes() -> None:
    full = (0b111, 0b111, 0b111)
    left = precedence.subtract_boxes({0: 0b011}, [{0: 0b001, 1: 0b110}, {1: 0b010, 2: 0b100}], full)
    for at in range(27):
        point = (1 << at % 3, 1 << at // 3 % 3, 1 << at // 9)
        inside = bool(point[0] & 0b011)
        taken = (point[0] & 0b001 and point[1] & 0b110) or (point[1] & 0b010 and point[2] & 0b100)
        covering = [box for box in left if all(point[component] & mask for component, mask in box.items())]
        assert len(covering) == (inside and not taken), point
    assert precedence.subtract_boxes({0: 0b011}, [{0: 0b111}], full) == []


def test_a_dispute_binds_to_what_all_sides_allow(tmp_path: Path) -> None:
    given = conflicting_facts(
        tmp_path,
        fact("a.one", "limits", {"a": "3.0"}, {"b": "1"}, question="q", strength="disputed"),
        fact("a.two", "limits", {"a": "3.0"}, {"b": "<=2"}, question="q", strength="disputed", source="issue"),
    )
    assert allowed(given, "a=3.0") == "12"
    assert allowed(given, "a=2.0") == "123"
    assert allowed(given, "a=3.0", waived=["a.one"]) == "12", "the other one still binds"
    assert allowed(given, "a=3.0", waived=["a.one", "a.two"]) == "123"
    results = evaluate_rows(given, given.assignment({"a": "3.0", "b": "2.0"}))
    assert [(given.fact(entry.row).id, entry.fails, dict(entry.yields)) for entry in results] == [
        ("a.one", ("b",), {}),
        ("a.two", (), {}),
    ]
    assert set(program_of(given).owners) == {(0, 1)}


def test_a_better_source_resolves_a_dispute(tmp_path: Path) -> None:
    given = conflicting_facts(
        tmp_path,
        fact("a.one", "limits", {"a": ">=2"}, {"b": "1"}, question="q", strength="disputed", source="issue"),
        fact("a.two", "limits", {"a": ">=2"}, {"b": "<=2"}, question="q", strength="disputed", source="issue"),
        fact("a.seen", "limits", {"a": "3.0"}, {"b": "3"}, question="q"),
    )
    assert allowed(given, "a=3.0") == "3"
    assert allowed(given, "a=2.0") == "12"
    results = evaluate_rows(given, given.assignment({"a": "3.0", "b": "3.0"}))
    assert [(given.fact(entry.row).id, entry.fails) for entry in results] == [
        ("a.one", ()),
        ("a.seen", ()),
        ("a.two", ()),
    ]
