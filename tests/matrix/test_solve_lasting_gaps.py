"""Gaps of the facts that no choice of versions fills."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from envbuild.matrix.answer import fixes, plan_filter
from envbuild.matrix.answer.check import check
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.lasting_gaps import (
    Consequences,
    can_be_covered,
    has_fixed_gap,
    unheard_requests,
    unrelatable_pairs,
)
from envbuild.matrix.solve.query import Query
from envbuild.matrix.solve.request import parse_request
from envbuild.matrix.solve.unknowns import has_unknowns
from tests.support.facts import fact, matrix
from tests.support.shipped_facts import shipped_matrix

pytestmark = pytest.mark.unit

COMPONENTS = {name: ["1.0", "2.0"] for name in "abcde"}
FACTS = [
    fact("a.b", "limits", {"a": "1.0"}, {"b": "1.0"}),
    fact("b.c", "limits", {"b": "*"}, {"c": "*"}, asserts="compatible"),
    fact("c.d", "limits", {"c": "*"}, {"d": "*"}),
]
PAIRS = [{"of": ["a", "c"], "through": "b", "because": "made up"}, {"of": ["a", "d"], "independent": "made up"}]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> FactTable:
    return matrix(tmp_path_factory.mktemp("facts"), COMPONENTS, FACTS, pairs=PAIRS)


def pairs(given: FactTable, asked: str, *waived: str) -> set[str]:
    numbers = [given.number[name] for name in asked]
    found = unrelatable_pairs(given, numbers, frozenset(waived))
    return {"".join(sorted(given.components[at].name for at in pair)) for pair in found}


def test_a_pair_that_some_version_relates_can_be_known(small: FactTable) -> None:
    assert pairs(small, "ab") == pairs(small, "ac") == pairs(small, "ad") == pairs(small, "bc") == set()
    assert pairs(small, "abcde") == {"bd", "cd", "ae", "be", "ce", "de"}  # "*" alone relates nothing
    assert pairs(small, "abcde", "unrelated") == set()


def test_pairs_that_two_components_cover() -> None:
    chain = [frozenset(pair) for pair in ("ab", "bc", "cd")]
    assert [can_be_covered(chain[:count], 1) for count in range(4)] == [True, True, True, False]
    assert can_be_covered(chain, 2)
    assert not can_be_covered([*chain, frozenset("ef")], 2)


def test_no_plan_is_tried_where_none_can_be_known(small: FactTable, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    change_one = fixes._change_one

    def count(task: Any, name: str) -> Any:
        tried.append(name)
        return change_one(task, name)

    monkeypatch.setattr(fixes, "_change_one", count)
    for words, names in (("a=2.0 b=1.0", {"a", "b"}), ("b=1.0 d=1.0 c=2.0 e", set()), ("a=1.0 b=2.0 c=1.0 e", {"e"})):
        tried.clear()
        given = check(small, parse_request(words.split(), small))
        assert given.verdict in ("unknown", "conflict")
        assert set(tried) <= names
    assert check(small, parse_request(["a=2.0", "b=1.0"], small)).nearest == ("a=1.0",)


def test_questions_about_one_request_share_a_search(small: FactTable) -> None:
    query = Query.of(small, parse_request(["a", "b=2.0", "c"], small), ())
    assert query.plan is not None
    assert len(query.matrix.searches) == 1


@pytest.mark.parametrize("word, kept", [("driver=550.67", True), ("gcc=3", False), ("deepspeed=99.1", False)])
def test_a_version_between_known_ones_does_not_have_to_change(word: str, kept: bool) -> None:
    query = Query.of(shipped_matrix(), parse_request([word], shipped_matrix()), ())
    assert (unheard_requests(query.matrix, query.wanted, frozenset()) == []) is kept


def test_the_hint_leaves_a_version_between_known_ones_as_it_is() -> None:
    words = ["gpu=H100", "code=sm_80", "cuda=12.4", "driver=550.67"]
    given = check(shipped_matrix(), parse_request(words, shipped_matrix()))
    assert given.verdict == "conflict"
    assert [fix for conflict in given.conflicts for fix in conflict.fixes] == ["code=sm_90a", "gpu=L40S"]


GAPS = (  # question, the components that keep their values, whether something about these alone is unknown
    ("kernel=6.12 driver=550.127.05", "kernel driver", True),
    ("kernel=6.12 driver=550.127.05", "kernel", False),
    ("gpu='Jetson Thor' cuda=12.8", "gpu cuda", True),  # about the code for the GPU, which follows from it
    ("deepspeed=0.17.2 torch=2.8.0 gpu=H100", "deepspeed gpu", False),
    ("flash-attn-3 torch=2.6.0 cuda=12.4 gpu=H100", "flash-attn-3 torch", True),
    ("gpu=H100 torch=2.8.0 driver=570.26", "gpu torch driver", False),
)


@pytest.mark.parametrize("words, fixed, gap", GAPS)
def test_a_gap_about_fixed_values_is_found_without_the_rest(words: str, fixed: str, gap: bool) -> None:
    asks = parse_request(shlex.split(words), shipped_matrix())
    query = Query.of(shipped_matrix(), asks, ())
    assert query.plan is not None
    table, numbers = query.matrix, {query.matrix.number[name] for name in fixed.split()}
    whole = Consequences(table, query.waived).close(query.plan.assignment, numbers)
    asked = {table.number[ask.component] for ask in asks}
    assert has_fixed_gap(table, query.plan.assignment, whole, asked, query.waived) is gap
    assert not gap or has_unknowns(table, query.plan.assignment, asks, query.waived)


def test_older_choices_are_not_tried_for_a_gap_about_fixed_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel and each driver are requested: what the request leaves open cannot make their combination known."""
    tried: list[Any] = []
    monkeypatch.setattr(plan_filter, "prefer_known_plan", lambda *given: tried.append(given) or given[4])
    words = ["kernel=6.12", "driver=550.127.05", "cuda>=12"]
    assert check(shipped_matrix(), parse_request(words, shipped_matrix())).verdict == "unknown"
    assert tried == []
