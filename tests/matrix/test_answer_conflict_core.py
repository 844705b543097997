"""Conflicts: what is needed for one and no more, and all of them."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.matrix.answer import conflict_core
from envbuild.matrix.answer.conflict_core import find_cores
from envbuild.matrix.facts.compile import compile_facts
from envbuild.matrix.facts.fact_table import HARD, FactTable
from envbuild.matrix.sat.minimal_core import Deadline
from envbuild.matrix.solve.encoding import SECONDS, Core, Problem, Request, pick_newest
from tests.support.facts import fact, matrix, plan, read, requests
from tests.support.torch_facts import COMPONENTS, FACTS, core_ids
from tests.support.torch_facts import small as small  # a fixture

pytestmark = pytest.mark.unit


def find_core(
    given: FactTable, words: Sequence[Request], ignored: Collection[int] = frozenset(), seconds: float = SECONDS
) -> Core | None:
    return conflict_core.find_core(Problem.of(given, words, (), HARD, ignored), Deadline(seconds))


def possible(given: FactTable, words: Sequence[Request], rows: set[int]) -> bool:
    """Return whether there is a plan when only these rows bind."""
    others = frozenset(range(len(given.rows))) - rows
    return find_core(given, words, ignored=others) is None


def test_a_conflict_is_minimal(small: FactTable) -> None:
    asked = requests(small, "gpu=H100", "torch=2.0.1", "cuda=11.8", "driver=525.10", "python=3.11", "triton")
    found = find_core(small, asked)
    assert found is not None
    assert core_ids(small, found) == ({"gpu=H100", "torch=2.0.1"}, ["gpu.sm", "torch.sm"])
    assert found.minimal
    assert found.components() == ("gpu", "torch")
    assert pick_newest(small, asked) is None
    assert find_core(small, asked[1:]) is None


def test_no_part_of_a_conflict_can_be_removed(small: FactTable) -> None:
    asked = requests(small, "gpu=H100", "torch<2.3", "cuda=11.7", "driver=470.10", "python>=3.11", "apex=22.03")
    for found in find_cores(small, asked):
        rows = set(found.rows)
        assert not possible(small, found.requests, rows)
        for row in rows:
            assert possible(small, found.requests, rows - {row})
        for request in found.requests:
            assert possible(small, [other for other in found.requests if other != request], rows)


def test_requests_that_contradict_each_other(small: FactTable) -> None:
    asked = [*requests(small, "torch=2.0.1", "gpu=H100"), replace(requests(small, "torch=2.1.0")[0], id="other")]
    assert [core_ids(small, found) for found in find_cores(small, asked)] == [
        ({"torch=2.0.1", "other"}, []),
        ({"torch=2.0.1", "gpu=H100"}, ["gpu.sm", "torch.sm"]),
    ]


def test_a_request_for_nothing_that_is_known(small: FactTable) -> None:
    (found,) = find_cores(small, requests(small, "torch>=9", "gpu=H100"))
    assert core_ids(small, found) == ({"torch>=9"}, [])


def test_many_rows_of_one_fact_are_reported_together(tmp_path: Path) -> None:
    versions = [f"1.{minor}" for minor in range(12)]
    rows = [({"a": f"=={version}"}, {"b": "<2"}) for version in versions]
    given = matrix(tmp_path, {"a": versions, "b": ["1", "2"]}, [fact("a.b", "limits", rows)])
    found = find_core(given, requests(given, "a", "b=2"))
    assert found is not None
    assert found.groups == (tuple(range(12)),)
    found = find_core(given, requests(given, "a<1.3", "b=2"))
    assert found is not None
    assert sorted(found.groups) == [(9,), (10,), (11,)]  # rows are sorted newest first


def test_every_conflict_is_reported(tmp_path: Path) -> None:
    """Ten conflicts beside each other, all over the one definition of what `root` is."""
    components: dict[str, Any] = {f"c{at}": ["1", "2"] for at in range(10)}
    components |= {"root": {"kind": "name", "values": ["x"], "rank": 1}, "made": ["1", "2"]}
    facts = [fact("root.made", "provides", {"root": "x"}, {"made": "1"})]
    facts += [fact(f"c{at}.limit", "limits", {"made": "1"}, {f"c{at}": "1"}) for at in range(10)]
    given = matrix(tmp_path, components, facts)
    asked = requests(given, "root", *(f"c{at}=2" for at in range(10)))
    found = find_cores(given, asked)
    assert {core_ids(given, conflict)[1][-1] for conflict in found} == {f"c{at}.limit" for at in range(10)}
    assert {core_ids(given, conflict)[1][0] for conflict in found} == {"root.made"}
    assert len(found) == 10
    assert all(conflict.minimal for conflict in found)


def test_definitions_alone_can_contradict(tmp_path: Path) -> None:
    facts = [fact("a.c", "provides", {"a": "1"}, {"c": "1"}), fact("b.c", "provides", {"b": "1"}, {"c": "2"})]
    given = matrix(tmp_path, {"a": ["1"], "b": ["1"], "c": ["1", "2"]}, facts)
    (found,) = find_cores(given, requests(given, "a", "b"))
    assert core_ids(given, found) == ({"a", "b"}, ["a.c", "b.c"])
    assert found.aside == {1}, "the last of them is set aside"


def test_a_disputed_fact_conflicts_as_a_whole(tmp_path: Path) -> None:
    facts = [
        fact(f"a.{name}", "limits", {"a": "*"}, {"b": f"<={most}"}, question="q", strength="disputed")
        for name, most in (("one", 1), ("two", 2))
    ]
    given = matrix(tmp_path, {"a": ["1"], "b": ["1", "2", "3"]}, facts, {"q": ["a", "b"]})
    assert plan(given, "a", "b") == {"a": "1", "b": "2"}
    (found,) = find_cores(given, requests(given, "a", "b=3"))
    assert core_ids(given, found) == ({"a", "b=3"}, ["a.one", "a.two"])
    assert find_cores(given, requests(given, "a", "b=3"), waived=["a.one", "a.two"]) == []


def test_waived_facts_do_not_count(small: FactTable) -> None:
    asked = requests(small, "gpu=H100", "torch=2.0.1")
    assert find_cores(small, asked, waived=["torch.sm"]) == []
    assert plan(small, "gpu=H100", "torch=2.0.1", waived=["gpu.sm"]) == {
        **{"gpu": "H100", "torch": "2.0.1"},
        "triton": "2.2",
    }


def test_the_order_of_facts_changes_neither_plan_nor_size_of_a_conflict(tmp_path: Path) -> None:
    facts = read(tmp_path, COMPONENTS, FACTS)
    words = ("gpu=H100", "torch<2.3", "cuda=11.7", "driver=470.10", "python>=3.11", "apex=22.03")
    seen = set()
    for seed in range(6):
        order = random.Random(seed)
        names = [f"fact.x{at}" for at in range(len(facts.facts))]
        renamed = {}
        for name, item in zip(order.sample(names, len(names)), facts.facts.values(), strict=True):
            renamed[name] = replace(item, id=name, rows=tuple(order.sample(item.rows, len(item.rows))))
        given = compile_facts(replace(facts, facts=renamed))
        sizes = sorted(len(found.requests) + len(found.rows) for found in find_cores(given, requests(given, *words)))
        seen.add((tuple(sizes), str(plan(given, "torch", "python=3.8", "gpu=A100", "cuda"))))
    assert len(seen) == 1


def test_after_the_time_limit_the_conflict_is_reported_as_not_minimal(small: FactTable) -> None:
    found = find_core(small, requests(small, "gpu=H100", "torch=2.0.1", "cuda=11.8"), seconds=-1)
    assert found is not None
    assert not found.minimal
    assert {"gpu=H100", "torch=2.0.1"} <= core_ids(small, found)[0]
