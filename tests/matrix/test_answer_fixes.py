"""Fixes of a conflict: the nearest version, what is cheap, and only what then has a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from envbuild.matrix.answer.conflict_core import find_cores
from envbuild.matrix.answer.fixes import Fix, find_fixes, find_fixes_of_one
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.encoding import Request, pick_newest
from tests.support.facts import requests
from tests.support.torch_facts import core_ids
from tests.support.torch_facts import small as small  # a fixture

pytestmark = pytest.mark.unit


def proposed_fixes(given: FactTable, *words: str, good: Any = None) -> list[tuple[int, list[str], tuple[str, ...]]]:
    asked = requests(given, *words)
    found = find_fixes(given, asked, find_cores(given, asked), good=good)
    assert all(works(given, asked, fix) for fix in found)
    return [(fix.cost, [change.text for change in fix.changes], fix.changes[0].others) for fix in found]


def works(given: FactTable, asked: Sequence[Request], fix: Fix) -> bool:
    """Return whether the request with the fix's values has the plan that the fix names."""
    changed = {change.component: change.value for change in fix.changes}
    kept = [request for request in asked if request.component not in changed]
    new = [Request("", name, given.bit(name, value)) for name, value in changed.items() if value is not None]
    found = pick_newest(given, [*kept, *new])
    return found is not None and found.assignment == fix.assignment


def test_the_nearest_version_and_how_far_it_reaches(small: FactTable) -> None:
    assert proposed_fixes(small, "gpu=H100", "torch=2.0.1") == [
        (3, ["torch>=2.1"], ()),
        (9, ["gpu=A100"], ("V100", "L4")),
    ]
    assert proposed_fixes(small, "torch=2.3.0", "gpu=V100", "python=3.8") == [
        (3, ["torch<=2.0.1"], ()),
    ]
    assert proposed_fixes(small, "torch=2.3.0", "cuda=11.8") == [(3, ["cuda=12.1"], ()), (3, ["torch<=2.1.0"], ())]
    assert proposed_fixes(small, "driver=470.10", "cuda=12.1") == [(3, ["cuda=11.7"], ()), (6, ["driver>=525.10"], ())]
    assert proposed_fixes(small, "driver=470.10", "cuda=12.1", "torch>=2.2") == [(6, ["driver>=525.10"], ())]


def test_cheap_components_may_be_left_out(small: FactTable) -> None:
    assert proposed_fixes(small, "apex=22.03", "torch=2.0.1") == [
        (1, ["apex=23.08"], ()),
        (3, ["torch=1.13.1"], ()),
        (4, ["leave apex out"], ()),
    ]


def test_two_changes_where_one_does_not_help(small: FactTable) -> None:
    assert proposed_fixes(small, "torch=1.13.1", "python=3.12", "cuda=12.1") == [(3, ["torch>=2.1"], ())]
    assert proposed_fixes(small, "torch=2.3.0", "cuda=11.8", "gpu=V100", "python=3.11") == [(3, ["torch=2.1.0"], ())]
    assert proposed_fixes(small, "driver=470.10", "cuda=12.1", "torch=2.3.0", "gpu=V100") == [
        (6, ["torch=2.1.0", "cuda=11.7"], ()),
        (9, ["driver=525.10", "torch=2.2.0"], ()),
        (15, ["gpu=H100", "driver=525.10"], ()),
    ]


class Without:
    """A filter of plans without some versions of a component; `barred`: those are barred before there is a plan."""

    def __init__(self, table: FactTable, name: str, values: tuple[str, ...], barred: bool = False) -> None:
        self.number, self.barred = table.number[name], barred
        self.mask = sum(table.bit(name, value) for value in values)

    def __call__(self, assignment: list[int]) -> bool:
        return not assignment[self.number] & self.mask

    def bars(self, values: Mapping[int, int]) -> bool:
        return self.barred and bool(values.get(self.number, 0) & self.mask)


@pytest.mark.parametrize("barred", [False, True])
def test_only_fixes_known_to_be_good_are_proposed(small: FactTable, barred: bool) -> None:
    known = Without(small, "torch", ("2.1.0", "2.3.0"), barred)
    assert proposed_fixes(small, "gpu=H100", "torch=2.0.1", good=known)[0] == (3, ["torch=2.2.0"], ())
    none = Without(small, "gpu", tuple(small.values[small.number["gpu"]]))
    assert proposed_fixes(small, "gpu=H100", "torch=2.0.1", good=none) == []


def test_each_conflict_by_itself(small: FactTable) -> None:
    asked = requests(small, "gpu=H100", "torch=2.0.1", "driver=470.10", "cuda=11.8", "apex=22.03")
    found = find_cores(small, asked)
    assert len(found) == 3
    assert find_fixes(small, asked, found) == []
    fixes = {}
    for one in found:
        nearest = find_fixes_of_one(small, asked, one, [other for other in found if other != one])[:1]
        fixes[core_ids(small, one)[1][-1]] = [change.text for fix in nearest for change in fix.changes]
    assert fixes == {"torch.sm": ["torch=2.1.0"], "cuda.driver": ["cuda=11.7"], "apex.old": ["apex=23.08"]}


def test_a_conflict_beside_requests_that_contradict_each_other(small: FactTable) -> None:
    asked = [*requests(small, "torch=2.0.1", "gpu=H100"), replace(requests(small, "torch=1.13.1")[0], id="other")]
    first, second = find_cores(small, asked)
    texts = [change.text for fix in find_fixes_of_one(small, asked, second, [first]) for change in fix.changes]
    assert texts == ["torch>=2.1", "gpu=A100"]


def test_a_labelled_version_is_a_start_of_the_search(small: FactTable) -> None:
    assert proposed_fixes(small, "torch=2.2.0+cu118", "cuda=11.8", "gpu=V100")[-1] == (3, ["torch<=2.1.0"], ())
