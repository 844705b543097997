"""Plans, conflicts, fixes and what holds a version back, on small facts whose answers can be seen."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from smallfacts import fact, matrix, read, requests

from envbuild.matrix import explain
from envbuild.matrix.compiled import Matrix, compile_facts
from envbuild.matrix.explain import Core, Request, core, cores, held, picks
from envbuild.matrix.fixes import Fix, fixes, fixes_of
from envbuild.matrix.masks import ABSENT
from envbuild.matrix.minimal import Clock, smallest
from envbuild.matrix.model import Facts
from envbuild.matrix.solver import Undecided

pytestmark = pytest.mark.unit

TORCH = ["1.13.1", "2.0.1", "2.1.0", "2.2.0", "2.3.0"]
COMPONENTS: dict[str, Any] = {
    "gpu": {"kind": "name", "values": ["H100", "A100", "V100", "L4"], "rank": 1, "cost": 9, "shown": "{value}"},
    "sm": {"kind": "sm", "values": ["9.0", "8.9", "8.0", "7.0"], "rank": 2, "hidden": True},
    "torch": {"values": [*TORCH, "2.2.0+cu118", "2.4.0a0+1a2b3c"], "rank": 10, "cost": 3},
    "cuda": {"values": ["11.7", "11.8", "12.1"], "rank": 15, "cost": 3, "precision": 2},
    "python": {"values": ["3.8", "3.9", "3.10", "3.11", "3.12"], "rank": 18, "cost": 4, "precision": 2},
    "triton": {"values": ["2.0", "2.1", "2.2"], "rank": 21, "cost": 1},
    "apex": {"values": ["22.03", "23.08"], "rank": 30, "cost": 1},
    "driver": {"values": ["470.10", "520.10", "525.10", "535.10"], "rank": 90, "cost": 6},
}
SM = {"H100": "9.0", "A100": "8.0", "V100": "7.0", "L4": "8.9"}
FACTS = [
    fact("gpu.sm", "provides", [({"gpu": gpu}, {"sm": sm}) for gpu, sm in SM.items()]),
    fact("torch.sm", "limits", [({"torch": "<2.1"}, {"sm": "<9.0"}), ({"torch": ">=2.3"}, {"sm": ">=8.0"})]),
    fact("torch.python", "limits", [({"torch": "<2"}, {"python": "<3.11"}), ({"torch": ">=2.1"}, {"python": ">=3.9"})]),
    fact("torch.cuda", "limits", [({"torch": "<2.1"}, {"cuda": "<12"}), ({"torch": ">=2.2"}, {"cuda": ">=12"})]),
    fact("torch.triton", "provides", [({"torch": f">={at}"}, {"triton": f">={at}"}) for at in ("2.0", "2.1", "2.2")]),
    fact("cuda.driver", "limits", [({"cuda": ">=12"}, {"driver": ">=525"}), ({"cuda": "11.8"}, {"driver": ">=520"})]),
    fact("apex.torch", "requires", {"apex": "23.08"}, {"torch": ">=2"}),
    fact("apex.old", "limits", {"apex": "22.03"}, {"torch": "<2"}),
]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return read(tmp_path_factory.mktemp("facts"), COMPONENTS, FACTS)


@pytest.fixture(scope="module")
def small(facts: Facts) -> Matrix:
    return compile_facts(facts)


def plan(given: Matrix, *words: str, waived: Sequence[str] = ()) -> dict[str, str] | None:
    found = picks(given, requests(given, *words), waived)
    return None if found is None else given.named(found.assignment)


def told(given: Matrix, conflict: Core) -> tuple[set[str], list[str]]:
    """(the requests, the ids of the facts in order)."""
    return {request.id for request in conflict.requests}, [given.fact(row).id for row in conflict.rows]


def possible(given: Matrix, words: Sequence[Request], rows: set[int]) -> bool:
    """Whether there is a plan when only these rows bind."""
    others = frozenset(range(len(given.rows))) - rows
    return explain.core(given, words, ignored=others) is None


# --- plans


def test_what_nobody_asks_for_is_absent_unless_a_fact_brings_it(small: Matrix) -> None:
    assert plan(small, "torch") == {"torch": "2.3.0", "triton": "2.2"}
    assert plan(small, "gpu=A100") == {"gpu": "A100", "sm": "8.0"}
    assert plan(small, "apex") == {"apex": "23.08", "torch": "2.3.0", "triton": "2.2"}
    assert plan(small, "apex=22.03") == {"apex": "22.03"}


def test_the_newest_of_what_goes_together(small: Matrix) -> None:
    assert plan(small, "torch", "cuda=11.8") == {"torch": "2.1.0", "triton": "2.2", "cuda": "11.8"}
    assert plan(small, "torch", "python=3.8", "gpu=A100") == {
        **{"gpu": "A100", "sm": "8.0", "torch": "2.0.1"},
        **{"python": "3.8", "triton": "2.2"},
    }


def test_a_component_of_lower_rank_is_newest_first(tmp_path: Path) -> None:
    limits = fact("a.b", "limits", {"a": "2"}, {"b": "1"})
    components: dict[str, Any] = {"a": {"values": ["1", "2"], "rank": 1}, "b": {"values": ["1", "2"], "rank": 2}}
    assert plan(matrix(tmp_path / "1", components, [limits]), "a", "b") == {"a": "2", "b": "1"}
    components["a"]["rank"] = 3
    assert plan(matrix(tmp_path / "2", components, [limits]), "a", "b") == {"a": "1", "b": "2"}


def test_nothing_asked_for_gets_older_so_that_something_else_stays_away(tmp_path: Path) -> None:
    facts = [fact("torch.base", "requires", {"torch": "2"}, {"base": "*"})]
    components: dict[str, Any] = {"base": {"values": ["1"], "rank": 1}, "torch": {"values": ["1", "2"], "rank": 2}}
    assert plan(matrix(tmp_path, components, facts), "torch") == {"base": "1", "torch": "2"}


def test_builds_that_cannot_be_compared_are_taken_only_when_asked_for(small: Matrix) -> None:
    assert plan(small, "torch=2.4.0a0+1a2b3c", "gpu=V100") == {"gpu": "V100", "sm": "7.0", "torch": "2.4.0a0+1a2b3c"}
    assert plan(small, "torch>=2.4") is None


def test_warnings_are_heeded_where_they_can_be(tmp_path: Path) -> None:
    facts = [
        fact("b.odd", "limits", {"a": "*"}, {"b": "!=3"}, strength="warn"),
        fact("b.even", "limits", {"a": "*"}, {"b": "!=2"}, strength="warn"),
        fact("a.extra", "requires", {"a": "*"}, {"extra": "*"}, strength="warn"),
        fact("b.never", "limits", {"a": "*"}, {"b": "<9"}),
    ]
    given = matrix(tmp_path, {"a": ["1"], "b": ["1", "2", "3"], "extra": ["1"]}, facts)
    assert plan(given, "a", "b") == {"a": "1", "b": "1"}, "what is merely advised is not brought in"
    found = picks(given, requests(given, "a", "b>=2"))
    assert found is not None
    assert given.named(found.assignment) == {"a": "1", "b": "3"}
    assert [given.fact(row).id for row in found.unheeded] == ["b.odd"]
    found = picks(given, requests(given, "a", "b=3"))
    assert found is not None
    assert [given.fact(row).id for row in found.unheeded] == ["b.odd"]
    assert plan(given, "a", "b>=2", waived=["b.odd"]) == {"a": "1", "b": "3"}


# --- conflicts


def test_a_conflict_is_what_is_needed_and_no_more(small: Matrix) -> None:
    asked = requests(small, "gpu=H100", "torch=2.0.1", "cuda=11.8", "driver=525.10", "python=3.11", "triton")
    found = core(small, asked)
    assert found is not None
    assert told(small, found) == ({"gpu=H100", "torch=2.0.1"}, ["gpu.sm", "torch.sm"])
    assert found.minimal
    assert found.components() == ("gpu", "torch")
    assert picks(small, asked) is None
    assert core(small, asked[1:]) is None


def test_nothing_of_a_conflict_can_go(small: Matrix) -> None:
    asked = requests(small, "gpu=H100", "torch<2.3", "cuda=11.7", "driver=470.10", "python>=3.11", "apex=22.03")
    for found in cores(small, asked):
        rows = set(found.rows)
        assert not possible(small, found.requests, rows)
        for row in rows:
            assert possible(small, found.requests, rows - {row})
        for request in found.requests:
            assert possible(small, [other for other in found.requests if other != request], rows)


def test_requests_that_contradict_each_other(small: Matrix) -> None:
    asked = [*requests(small, "torch=2.0.1", "gpu=H100"), replace(requests(small, "torch=2.1.0")[0], id="other")]
    assert [told(small, found) for found in cores(small, asked)] == [
        ({"torch=2.0.1", "other"}, []),
        ({"torch=2.0.1", "gpu=H100"}, ["gpu.sm", "torch.sm"]),
    ]


def test_a_request_for_nothing_that_is_known(small: Matrix) -> None:
    (found,) = cores(small, requests(small, "torch>=9", "gpu=H100"))
    assert told(small, found) == ({"torch>=9"}, [])


def test_many_rows_of_one_fact_are_told_together(tmp_path: Path) -> None:
    versions = [f"1.{minor}" for minor in range(12)]
    rows = [({"a": f"=={version}"}, {"b": "<2"}) for version in versions]
    given = matrix(tmp_path, {"a": versions, "b": ["1", "2"]}, [fact("a.b", "limits", rows)])
    found = core(given, requests(given, "a", "b=2"))
    assert found is not None
    assert found.groups == (tuple(range(12)),)
    found = core(given, requests(given, "a<1.3", "b=2"))
    assert found is not None
    assert sorted(found.groups) == [(9,), (10,), (11,)]  # rows are kept newest first


def test_every_conflict_is_told(tmp_path: Path) -> None:
    """Ten conflicts beside each other, all over the one definition of what `root` is."""
    components: dict[str, Any] = {f"c{at}": ["1", "2"] for at in range(10)}
    components |= {"root": {"kind": "name", "values": ["x"], "rank": 1}, "made": ["1", "2"]}
    facts = [fact("root.made", "provides", {"root": "x"}, {"made": "1"})]
    facts += [fact(f"c{at}.limit", "limits", {"made": "1"}, {f"c{at}": "1"}) for at in range(10)]
    given = matrix(tmp_path, components, facts)
    asked = requests(given, "root", *(f"c{at}=2" for at in range(10)))
    found = cores(given, asked)
    assert {told(given, conflict)[1][-1] for conflict in found} == {f"c{at}.limit" for at in range(10)}
    assert {told(given, conflict)[1][0] for conflict in found} == {"root.made"}
    assert len(found) == 10
    assert all(conflict.minimal for conflict in found)


def test_definitions_alone_can_contradict(tmp_path: Path) -> None:
    facts = [fact("a.c", "provides", {"a": "1"}, {"c": "1"}), fact("b.c", "provides", {"b": "1"}, {"c": "2"})]
    given = matrix(tmp_path, {"a": ["1"], "b": ["1"], "c": ["1", "2"]}, facts)
    (found,) = cores(given, requests(given, "a", "b"))
    assert told(given, found) == ({"a", "b"}, ["a.c", "b.c"])
    assert found.aside == {1}, "the last of them is set aside"


def test_what_is_disputed_stands_in_the_way_as_a_whole(tmp_path: Path) -> None:
    facts = [
        fact(f"a.{name}", "limits", {"a": "*"}, {"b": f"<={most}"}, question="q", strength="disputed")
        for name, most in (("one", 1), ("two", 2))
    ]
    given = matrix(tmp_path, {"a": ["1"], "b": ["1", "2", "3"]}, facts, {"q": ["a", "b"]})
    assert plan(given, "a", "b") == {"a": "1", "b": "2"}
    (found,) = cores(given, requests(given, "a", "b=3"))
    assert told(given, found) == ({"a", "b=3"}, ["a.one", "a.two"])
    assert cores(given, requests(given, "a", "b=3"), waived=["a.one", "a.two"]) == []


def test_waived_facts_do_not_count(small: Matrix) -> None:
    asked = requests(small, "gpu=H100", "torch=2.0.1")
    assert cores(small, asked, waived=["torch.sm"]) == []
    assert plan(small, "gpu=H100", "torch=2.0.1", waived=["gpu.sm"]) == {
        **{"gpu": "H100", "torch": "2.0.1"},
        "triton": "2.2",
    }


def test_the_order_of_facts_changes_neither_plan_nor_size_of_a_conflict(facts: Facts) -> None:
    words = ("gpu=H100", "torch<2.3", "cuda=11.7", "driver=470.10", "python>=3.11", "apex=22.03")
    seen = set()
    for seed in range(6):
        order = random.Random(seed)
        names = [f"fact.x{at}" for at in range(len(facts.facts))]
        renamed = {}
        for name, item in zip(order.sample(names, len(names)), facts.facts.values(), strict=True):
            renamed[name] = replace(item, id=name, rows=tuple(order.sample(item.rows, len(item.rows))))
        given = compile_facts(replace(facts, facts=renamed))
        sizes = sorted(len(found.requests) + len(found.rows) for found in cores(given, requests(given, *words)))
        seen.add((tuple(sizes), str(plan(given, "torch", "python=3.8", "gpu=A100", "cuda"))))
    assert len(seen) == 1


def test_without_time_the_conflict_is_told_and_that_it_may_be_smaller(small: Matrix) -> None:
    found = core(small, requests(small, "gpu=H100", "torch=2.0.1", "cuda=11.8"), seconds=-1)
    assert found is not None
    assert not found.minimal
    assert {"gpu=H100", "torch=2.0.1"} <= told(small, found)[0]


def test_smallest_of_several_orders() -> None:
    """{0} … {2, 3, 4} contradict: deleting in one order alone may end at the larger part."""

    def contradict(members: Sequence[int]) -> list[int] | None:
        for part in ([0, 1], [2, 3, 4]):
            if set(part) <= set(members) and (members[0] in part or not {0, 1, 2, 3, 4} <= set(members)):
                return part
        return None if not {0, 1} <= set(members) else [0, 1]

    assert smallest(contradict, [2, 3, 4, 0, 1], Clock(9), 1) == ({2, 3, 4}, True)
    assert smallest(contradict, [2, 3, 4, 0, 1], Clock(9), 8) == ({0, 1}, True)
    assert smallest(lambda members: None, [1, 2], Clock(9), 8) is None


def test_what_cannot_be_decided_is_not_called_minimal() -> None:
    def contradict(members: Sequence[int]) -> Sequence[int]:
        if len(members) < 3:
            raise Undecided("no answer")
        return members

    assert smallest(contradict, [1, 2, 3], Clock(9), 2) == ({1, 2, 3}, False)
    with pytest.raises(Undecided):
        smallest(contradict, [1, 2], Clock(9), 2)


# --- fixes


def mended(given: Matrix, *words: str, good: Any = None) -> list[tuple[int, list[str], tuple[str, ...]]]:
    asked = requests(given, *words)
    found = fixes(given, asked, cores(given, asked), good=good)
    assert all(works(given, asked, fix) for fix in found)
    return [(fix.cost, [change.text for change in fix.changes], fix.changes[0].others) for fix in found]


def works(given: Matrix, asked: Sequence[Request], fix: Fix) -> bool:
    """Whether the request with the fix's values has the plan that the fix names."""
    changed = {change.component: change.value for change in fix.changes}
    kept = [request for request in asked if request.component not in changed]
    new = [Request("", name, given.bit(name, value)) for name, value in changed.items() if value is not None]
    found = picks(given, [*kept, *new])
    return found is not None and found.assignment == fix.assignment


def test_the_nearest_version_and_how_far_it_reaches(small: Matrix) -> None:
    assert mended(small, "gpu=H100", "torch=2.0.1") == [(3, ["torch>=2.1"], ()), (9, ["gpu=A100"], ("V100", "L4"))]
    assert mended(small, "torch=2.3.0", "gpu=V100", "python=3.8") == [
        (3, ["torch<=2.0.1"], ()),
    ]
    assert mended(small, "torch=2.3.0", "cuda=11.8") == [(3, ["cuda=12.1"], ()), (3, ["torch<=2.1"], ())]
    assert mended(small, "driver=470.10", "cuda=12.1") == [(3, ["cuda=11.7"], ()), (6, ["driver>=525.10"], ())]
    assert mended(small, "driver=470.10", "cuda=12.1", "torch>=2.2") == [(6, ["driver>=525.10"], ())]


def test_what_is_cheap_may_be_left_out(small: Matrix) -> None:
    assert mended(small, "apex=22.03", "torch=2.0.1") == [
        (1, ["apex=23.08"], ()),
        (3, ["torch=1.13.1"], ()),
        (4, ["leave apex out"], ()),
    ]


def test_two_changes_where_one_does_not_help(small: Matrix) -> None:
    assert mended(small, "torch=1.13.1", "python=3.12", "cuda=12.1") == [(3, ["torch>=2.1"], ())]
    assert mended(small, "torch=2.3.0", "cuda=11.8", "gpu=V100", "python=3.11") == [(3, ["torch=2.1.0"], ())]
    assert mended(small, "driver=470.10", "cuda=12.1", "torch=2.3.0", "gpu=V100") == [
        (6, ["torch=2.1.0", "cuda=11.7"], ()),
        (9, ["driver=525.10", "torch=2.2.0"], ()),
        (15, ["gpu=H100", "driver=525.10"], ()),
    ]


def test_only_what_is_known_to_be_good_is_proposed(small: Matrix) -> None:
    number = small.number["torch"]

    def known(assignment: list[int]) -> bool:
        return small.value(number, assignment[number]) not in ("2.1.0", "2.3.0")

    assert mended(small, "gpu=H100", "torch=2.0.1", good=known)[0] == (3, ["torch=2.2.0"], ())
    assert mended(small, "gpu=H100", "torch=2.0.1", good=lambda assignment: False) == []


def test_each_conflict_by_itself(small: Matrix) -> None:
    asked = requests(small, "gpu=H100", "torch=2.0.1", "driver=470.10", "cuda=11.8", "apex=22.03")
    found = cores(small, asked)
    assert len(found) == 3
    assert fixes(small, asked, found) == []
    mends = {
        told(small, one)[1][-1]: [change.text for fix in fixes_of(small, asked, one, [x for x in found if x != one])[:1]
        for change in fix.changes]
        for one in found
    }  # fmt: skip
    assert mends == {"torch.sm": ["torch=2.1.0"], "cuda.driver": ["cuda=11.7"], "apex.old": ["apex=23.08"]}


def test_a_conflict_beside_requests_that_contradict_each_other(small: Matrix) -> None:
    asked = [*requests(small, "torch=2.0.1", "gpu=H100"), replace(requests(small, "torch=1.13.1")[0], id="other")]
    first, second = cores(small, asked)
    texts = [change.text for fix in fixes_of(small, asked, second, [first]) for change in fix.changes]
    assert texts == ["torch>=2.1", "gpu=A100"]


def test_a_labelled_version_is_a_place_to_start_from(small: Matrix) -> None:
    assert mended(small, "torch=2.2.0+cu118", "cuda=11.8", "gpu=V100")[-1] == (3, ["torch<=2.1"], ())


# --- what holds a version back


def test_what_holds_a_version_back(small: Matrix) -> None:
    asked = requests(small, "gpu=V100", "torch", "python=3.8", "triton<2.2")
    found = picks(small, asked)
    assert found is not None
    assert small.named(found.assignment)["torch"] == "2.0.1"
    why = {value: told(small, one) for value, one in held(small, asked, found, "torch", count=2)}
    assert list(why) == ["2.1.0", "2.2.0"]
    assert why["2.1.0"] == ({"python=3.8"}, ["torch.python"])
    assert why["2.2.0"] in [({"python=3.8"}, ["torch.python"]), ({"triton<2.2"}, ["torch.triton"])]
    assert [value for value, _ in held(small, asked, found, "torch", count=9)] == ["2.1.0", "2.2.0", "2.3.0"]


def test_a_pick_of_higher_rank_holds_a_lower_one(small: Matrix) -> None:
    asked = requests(small, "cuda", "torch", "driver=520.10")
    found = picks(small, asked)
    assert found is not None
    assert small.named(found.assignment) == {"torch": "2.1.0", "triton": "2.2", "cuda": "11.8", "driver": "520.10"}
    assert [told(small, one) for _, one in held(small, asked, found, "cuda")] == [({"driver=520.10"}, ["cuda.driver"])]
    assert {value: told(small, one) for value, one in held(small, asked, found, "torch")} == {
        value: ({"cuda", "driver=520.10"}, ["cuda.driver", "torch.cuda"]) for value in ("2.2.0", "2.3.0")
    }


def test_what_was_picked_before_is_told_as_a_pick(tmp_path: Path) -> None:
    components: dict[str, Any] = {"a": {"values": ["1", "2"], "rank": 1}, "b": {"values": ["1", "2"], "rank": 2}}
    given = matrix(tmp_path, components, [fact("a.b", "limits", {"a": "2"}, {"b": "1"})])
    asked = requests(given, "a", "b")
    found = picks(given, asked)
    assert found is not None
    ((value, conflict),) = held(given, asked, found, "b")
    assert value == "2"
    assert [(request.id, request.component, request.mask) for request in conflict.requests] == [
        ("", "a", given.bit("a", "2"))
    ]
    assert held(given, asked, found, "a") == []


def test_a_request_can_hold_its_own_component(small: Matrix) -> None:
    asked = requests(small, "torch<2.2")
    found = picks(small, asked)
    assert found is not None
    assert {value: told(small, one) for value, one in held(small, asked, found, "torch")} == {
        "2.2.0": ({"torch<2.2"}, []),
        "2.3.0": ({"torch<2.2"}, []),
    }
    assert held(small, asked, found, "apex") == []
    assert found.assignment[small.number["apex"]] == ABSENT


def test_a_warning_can_hold_a_version(tmp_path: Path) -> None:
    facts = [
        fact("a.b", "limits", {"a": "2"}, {"b": "1"}, strength="warn"),
        fact("a.c", "limits", {"a": "*"}, {"b": "*"}),
    ]
    given = matrix(tmp_path, {"a": ["1", "2"], "b": ["2"]}, facts)
    asked = requests(given, "a", "b")
    found = picks(given, asked)
    assert found is not None
    assert given.named(found.assignment) == {"a": "1", "b": "2"}
    ((value, conflict),) = held(given, asked, found, "a")
    assert (value, told(given, conflict)) == ("2", ({"b"}, ["a.b"]))
