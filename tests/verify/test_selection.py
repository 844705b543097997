"""A part of the checks of an image: which tasks run, and messages for parts that do not exist."""

from __future__ import annotations

import pytest

from envbuild.core.errors import SpecError
from envbuild.verify.results import AuditResult
from envbuild.verify.selection import ALL, Selection, check_recipes, check_tiers
from envbuild.verify.tasks import Task


def nothing() -> list[AuditResult]:
    return []


TASKS = [
    Task("audit", nothing, "audit"),
    Task("imports", nothing),
    Task("ucx: version", nothing, "run", "ucx"),
    Task("torch: all-reduce", nothing, "gpu", "torch"),
    Task("torch: import", nothing, "run", "torch"),
]


@pytest.mark.parametrize(
    ("selection", "picked"),
    [
        (ALL, [0, 1, 2, 3, 4]),
        (Selection(tiers=("audit",)), [0]),
        (Selection(tiers=("run",)), [1, 2, 4]),
        (Selection(recipes=("torch",)), [3, 4]),
        (Selection(tiers=("run",), recipes=("torch", "ucx")), [2, 4]),
    ],
)
def test_tasks_of_a_selection(selection: Selection, picked: list[int]) -> None:
    assert selection.pick(TASKS) == [TASKS[number] for number in picked]


def test_what_is_all() -> None:
    assert ALL.is_all and Selection(tiers=("run", "audit")).is_all
    assert not Selection(tiers=("run",)).is_all and not Selection(recipes=("ucx",)).is_all
    assert str(Selection(("run",), ("ucx", "torch"))) == "ucx, torch, tier run"


def test_a_tier_or_a_layer_that_does_not_exist() -> None:
    with pytest.raises(SpecError) as caught:
        check_tiers(["run", "aduit"])
    assert (caught.value.message, caught.value.hint) == ("--tier aduit: no such tier", "--tier audit or run")
    with pytest.raises(SpecError, match="--tier gpu: envbuild does not run checks of this tier yet"):
        check_tiers(["gpu"])
    with pytest.raises(SpecError) as caught:
        check_recipes(["ucx", "toch"], ["ucx", "torch"], "cpu-ucc")
    assert caught.value.message == "--only toch: cpu-ucc has no such layer"
    assert "torch" in caught.value.hint
