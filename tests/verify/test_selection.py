"""A part of the checks of an image: which tasks run, and messages for parts that do not exist."""

from __future__ import annotations

import pytest

from envbuild.core.errors import SpecError
from envbuild.spec.recipe import Check
from envbuild.verify.results import AuditResult, Status
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
    assert [result.name for result in selection.left_out(TASKS)] == [
        task.name for number, task in enumerate(TASKS) if number not in picked
    ]
    assert {result.status for result in selection.left_out(TASKS)} <= {Status.NOT_RUN}


def test_what_is_all() -> None:
    assert ALL.is_all and Selection(tiers=("run", "audit")).is_all
    assert not Selection(tiers=("run",)).is_all and not Selection(recipes=("ucx",)).is_all
    assert str(Selection(("run",), ("ucx", "torch"))) == "ucx, torch, tier run"


def test_a_tier_or_a_layer_that_does_not_exist() -> None:
    with pytest.raises(SpecError) as caught:
        check_tiers(["run", "aduit"])
    assert caught.value.message == "--tier aduit: no such tier"
    assert caught.value.hint == "--tier audit or run or gpu or fabric"
    with pytest.raises(SpecError, match="--tier gpu: its checks are jobs of their own"):
        check_tiers(["gpu"])


CHECKS = [("ucx", Check("version", "true")), ("nccl-tests", Check("all-reduce", "true", tier="gpu"))]
LAYERS = ["ucx", "nccl-tests", "python-packages"]


@pytest.mark.parametrize(
    ("only", "message", "hint"),
    [
        (Selection((), ("ucx", "nccl-test")), "nccl-test: cpu-ucc has no such layer", "did you mean 'nccl-tests'?"),
        (
            Selection((), ("python-packages",)),
            "python-packages: this layer has no checks",
            "layers with such checks: nccl-tests, ucx",
        ),
        (
            Selection(("run",), ("nccl-tests",)),
            "nccl-tests: this layer has no checks of tier run",
            "layers with such checks: ucx",
        ),
        (Selection(("audit",), ("ucx",)), "ucx: this layer has no checks of tier audit", "leave out --only"),
    ],
)
def test_a_selection_without_a_check_is_refused(only: Selection, message: str, hint: str) -> None:
    """It would pass, and nothing would have run."""
    with pytest.raises(SpecError) as caught:
        check_recipes(only, CHECKS, LAYERS, "cpu-ucc")
    assert (caught.value.message, caught.value.hint) == (f"--only {message}", hint)


def test_layers_with_checks_are_selected() -> None:
    check_recipes(Selection((), ("ucx", "nccl-tests")), CHECKS, LAYERS, "cpu-ucc")
    check_recipes(Selection(("run",), ("ucx",)), CHECKS, LAYERS, "cpu-ucc")
