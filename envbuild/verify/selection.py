"""A part of the checks of an image: those of some tiers, or of some recipes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from envbuild.core.errors import SpecError
from envbuild.core.text import human_list
from envbuild.core.yaml_reader import did_you_mean
from envbuild.spec.recipe import Check
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.tasks import Task
from envbuild.verify.tiers import ELSEWHERE, RUNNING, TIERS


@dataclass(frozen=True, slots=True)
class Selection:
    """The checks that are to run: of the `tiers`, and of the `recipes` (names of layers). Empty: of all."""

    tiers: tuple[str, ...] = ()
    recipes: tuple[str, ...] = ()

    @property
    def is_all(self) -> bool:
        return not self.recipes and (not self.tiers or set(RUNNING) <= set(self.tiers))

    def pick(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks of the selection. Only of some recipes, nothing about the whole image runs."""
        return [
            task
            for task in tasks
            if (not self.tiers or task.tier in self.tiers) and (not self.recipes or task.recipe in self.recipes)
        ]

    def left_out(self, tasks: Sequence[Task]) -> list[AuditResult]:
        """Return a result of each task that is not of the selection: not run."""
        picked = {id(task) for task in self.pick(tasks)}
        return [
            AuditResult(task.name, Status.NOT_RUN, ELSEWHERE.get(task.tier, "not requested"), task.tier)
            for task in tasks
            if id(task) not in picked
        ]

    def __str__(self) -> str:
        parts = [human_list(list(self.recipes), 3), *(f"tier {tier}" for tier in self.tiers)]
        return ", ".join(filter(None, parts))


ALL = Selection()


def check_tiers(tiers: Sequence[str]) -> None:
    """Refuse a tier that does not exist, and one whose checks are jobs of their own beside others (SpecError)."""
    for tier in tiers:
        if tier not in TIERS:
            raise SpecError(f"--tier {tier}: no such tier", hint=f"--tier {' or '.join(TIERS)}")
        if tier not in RUNNING:
            raise SpecError(f"--tier {tier}: its checks are jobs of their own", hint=f"type --tier {tier} alone")


def check_recipes(only: Selection, checks: Iterable[tuple[str, Check]], layers: Collection[str], image: str) -> None:
    """Refuse a layer that the image does not have, or of which the selection has no check (SpecError).

    checks: of the image, each with the name of its layer.
    """
    tiers: dict[str, set[str]] = {name: set() for name in layers}
    for name, check in checks:
        tiers.setdefault(name, set()).add(check.tier)
    for name in only.recipes:
        if name not in tiers:
            raise SpecError(f"--only {name}: {image} has no such layer", hint=did_you_mean(name, tiers, "its layers"))
        if not tiers[name].intersection(only.tiers or TIERS):
            wanted = f" of tier {' or '.join(only.tiers)}" if only.tiers else ""
            others = sorted(other for other, found in tiers.items() if found.intersection(only.tiers or TIERS))
            hint = f"layers with such checks: {', '.join(others)}" if others else "leave out --only"
            raise SpecError(f"--only {name}: this layer has no checks{wanted}", hint=hint)
