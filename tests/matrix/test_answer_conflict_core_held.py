"""Reasons why a version is not newer: a request, a pick of higher rank, or a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envbuild.matrix.answer.conflict_core import newer_value_conflicts
from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.encoding import pick_newest
from tests.support.facts import fact, matrix, requests
from tests.support.torch_facts import core_ids
from tests.support.torch_facts import small as small  # a fixture

pytestmark = pytest.mark.unit


def test_reasons_why_a_version_is_not_newer(small: FactTable) -> None:
    asked = requests(small, "gpu=V100", "torch", "python=3.8", "triton<2.2")
    found = pick_newest(small, asked)
    assert found is not None
    assert small.named(found.assignment)["torch"] == "2.0.1"
    why = {value: core_ids(small, one) for value, one in newer_value_conflicts(small, asked, found, "torch", count=2)}
    assert list(why) == ["2.1.0", "2.2.0"]
    assert why["2.1.0"] == ({"python=3.8"}, ["torch.python"])
    assert why["2.2.0"] in [({"python=3.8"}, ["torch.python"]), ({"triton<2.2"}, ["torch.triton"])]
    assert [value for value, _ in newer_value_conflicts(small, asked, found, "torch", count=9)] == [
        "2.1.0",
        "2.2.0",
        "2.3.0",
    ]


def test_a_pick_of_higher_rank_holds_a_lower_one(small: FactTable) -> None:
    asked = requests(small, "cuda", "torch", "driver=520.10")
    found = pick_newest(small, asked)
    assert found is not None
    assert small.named(found.assignment) == {"torch": "2.1.0", "triton": "2.2", "cuda": "11.8", "driver": "520.10"}
    assert [core_ids(small, one) for _, one in newer_value_conflicts(small, asked, found, "cuda")] == [
        ({"driver=520.10"}, ["cuda.driver"])
    ]
    assert {value: core_ids(small, one) for value, one in newer_value_conflicts(small, asked, found, "torch")} == {
        value: ({"cuda", "driver=520.10"}, ["cuda.driver", "torch.cuda"]) for value in ("2.2.0", "2.3.0")
    }


def test_a_version_picked_before_is_reported_as_a_pick(tmp_path: Path) -> None:
    components: dict[str, Any] = {"a": {"values": ["1", "2"], "rank": 1}, "b": {"values": ["1", "2"], "rank": 2}}
    given = matrix(tmp_path, components, [fact("a.b", "limits", {"a": "2"}, {"b": "1"})])
    asked = requests(given, "a", "b")
    found = pick_newest(given, asked)
    assert found is not None
    ((value, conflict),) = newer_value_conflicts(given, asked, found, "b")
    assert value == "2"
    assert [(request.id, request.component, request.mask) for request in conflict.requests] == [
        ("", "a", given.bit("a", "2"))
    ]
    assert newer_value_conflicts(given, asked, found, "a") == []


def test_a_request_can_hold_its_own_component(small: FactTable) -> None:
    asked = requests(small, "torch<2.2")
    found = pick_newest(small, asked)
    assert found is not None
    assert {value: core_ids(small, one) for value, one in newer_value_conflicts(small, asked, found, "torch")} == {
        "2.2.0": ({"torch<2.2"}, []),
        "2.3.0": ({"torch<2.2"}, []),
    }
    assert newer_value_conflicts(small, asked, found, "apex") == []
    assert found.assignment[small.number["apex"]] == ABSENT


def test_a_warning_can_hold_a_version(tmp_path: Path) -> None:
    facts = [
        fact("a.b", "limits", {"a": "2"}, {"b": "1"}, strength="warn"),
        fact("a.c", "limits", {"a": "*"}, {"b": "*"}),
    ]
    given = matrix(tmp_path, {"a": ["1", "2"], "b": ["2"]}, facts)
    asked = requests(given, "a", "b")
    found = pick_newest(given, asked)
    assert found is not None
    assert given.named(found.assignment) == {"a": "1", "b": "2"}
    ((value, conflict),) = newer_value_conflicts(given, asked, found, "a")
    assert (value, core_ids(given, conflict)) == ("2", ({"b"}, ["a.b"]))
