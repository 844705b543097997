"""Hints of an image: lines of its spec. Each is written into the spec, and the image is checked again, before it is
proposed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envbuild.core.distributions import DISTRIBUTIONS
from envbuild.core.errors import ConflictError, SpecError, UnknownError
from envbuild.core.yaml_nodes import relative_path
from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.fixes import Change, Fix
from envbuild.matrix.answer.verdict import Answer
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.waiver import Waiver
from envbuild.spec.compatible_layers import check_compatible
from envbuild.spec.image_spec import ImageSpec, fill_versions
from envbuild.spec.matrix_request import image_request, key_place, required_components
from envbuild.spec.recipe import OptionError, Recipe
from envbuild.spec.spec_line import base_text, layer_text
from envbuild.spec.target import Target

TYPED = 8  # specs that are checked for the hints of one answer
NO_CHANGE = "no change of one or two versions was found to work"
ROUNDS = 3  # answers until a change and its further needs suffice


@dataclass(frozen=True, slots=True)
class Edit:
    """A spec after changes, and the lines that differ, each with its place."""

    spec: ImageSpec
    lines: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " and ".join(self.lines)


def with_spec_lines(
    answer: Answer, spec: ImageSpec, target: Target, matrix: FactTable, waivers: Sequence[Waiver]
) -> Answer:
    """Return the answer about an image with its hints as lines of the spec: those after which the image has an answer,
    and which its recipes do not refuse."""
    if answer.verdict not in ("conflict", "unknown"):
        return answer
    trial = SpecTrial(spec, target, matrix, waivers)
    conflicts = tuple(
        replace(one, fixes=trial.hints(one.proposed), hardware=one.hardware or trial.start(one.proposed))
        for one in answer.conflicts
    )
    return replace(answer, conflicts=conflicts, nearest=trial.hints(answer.proposed))


class SpecTrial:
    """Changes to a spec, at most `TYPED` of which are answered."""

    def __init__(self, spec: ImageSpec, target: Target, matrix: FactTable, waivers: Sequence[Waiver]) -> None:
        self._spec, self._target, self._matrix, self._waivers = spec, target, matrix, waivers
        self._answers: dict[tuple[str, ...], Answer | None] = {}

    def hints(self, fixes: Iterable[Fix]) -> tuple[str, ...]:
        """Return those of the `fixes` of one conflict that work, as hints; of one that leaves other conflicts,
        including what these need."""
        found: dict[str, None] = {}
        for fix in fixes:
            edit = self._edit(Edit(self._spec), fix.changes)
            whole = self._complete(edit) if edit else None
            if edit and whole:
                more = whole.lines[len(edit.lines) :]
                rest = f", also needs {' and '.join(more)}" if more else ""
                found[f"write {edit.text}{rest}"] = None
        return tuple(found)

    def start(self, fixes: Iterable[Fix]) -> str:
        """Return the sentence on a conflict of which no change resolves everything: the first change that resolves this
        conflict; "" if none has a line in the spec."""
        edits = (self._edit(Edit(self._spec), fix.changes) for fix in fixes)
        first = next((edit for edit in edits if edit), None)
        return f"{NO_CHANGE}; take {first.text}, and versions of the others that go with it" if first else ""

    def _complete(self, edit: Edit) -> Edit | None:
        """Return the edit, with the first proposals for the conflicts that it leaves; None if that does not suffice."""
        changed = {line.partition(":")[0] for line in edit.lines}
        for _ in range(ROUNDS):
            answer = self._ask(edit)
            if answer is None or not answer.exit_code:
                return edit if answer else None
            before = edit
            for proposed in (*(one.proposed for one in answer.conflicts), answer.proposed):
                options = (self._edit(edit, fix.changes) for fix in proposed)
                more = (one for one in options if one and changed.isdisjoint(new_layers(edit, one)))
                edit = next(more, edit)
                changed |= {line.partition(":")[0] for line in edit.lines}
            if edit is before:
                return None
        return None

    def _ask(self, edit: Edit) -> Answer | None:
        """Return the answer about an edited spec; None if it has none, or if its recipes refuse it."""
        if edit.lines not in self._answers:
            self._answers[edit.lines] = self._check(edit.spec) if len(self._answers) < TYPED else None
        return self._answers[edit.lines]

    def _check(self, spec: ImageSpec) -> Answer | None:
        satisfied = frozenset(fact for recipe in spec.recipes.values() for fact in recipe.meets)
        try:
            answer = check(self._matrix, image_request(spec, self._target, self._matrix), self._waivers, satisfied)
            if not answer.exit_code:
                check_compatible(fill_versions(spec, answer.chosen), self._target)
        except (SpecError, ConflictError, UnknownError):
            return None
        return answer

    def _edit(self, before: Edit, changes: Sequence[Change]) -> Edit | None:
        """Return the spec with changes written into it; None when it has no line for one of them."""
        edit: Edit | None = before
        for change in changes:
            edit = self._edit_one(edit, change) if edit else None
        return edit

    def _edit_one(self, edit: Edit, change: Change) -> Edit | None:
        spec, value = edit.spec, change.value
        if change.component == "base":
            return self._with_base(edit, value) if value in DISTRIBUTIONS and spec.base in DISTRIBUTIONS else None
        for name, recipe in spec.recipes.items():
            if recipe.component == change.component:
                if value is None:
                    rest = {other: kept for other, kept in spec.recipes.items() if other != name}
                    return self._line(edit, name, rest, f"# {name}: left out")
                return self._with_layer(edit, name, version_of(recipe, value))
            packages = self._requirements(recipe, change.component, value)
            if packages is not None:
                return self._with_layer(edit, name, changed_recipe(recipe, packages=packages))
        return None

    def _with_base(self, edit: Edit, value: str) -> Edit:
        known = DISTRIBUTIONS[value]
        spec = replace(edit.spec, base=value, distribution=known.name, python=known.python)
        return Edit(spec, (*edit.lines, f"{base_text(known)} in {key_place(edit.spec, 'base')}"))

    def _with_layer(self, edit: Edit, name: str, recipe: Recipe | None) -> Edit | None:
        line = layer_text(name, recipe) if recipe else ""
        return self._line(edit, name, {**edit.spec.recipes, name: recipe}, line) if recipe and line else None

    def _line(self, edit: Edit, name: str, recipes: Mapping[str, Recipe], line: str) -> Edit:
        place, own = edit.spec.where.get(name, ""), relative_path(edit.spec.path)
        where = place if place.startswith(f"{own}:") else f"layers of {own}"
        return Edit(replace(edit.spec, recipes=recipes), (*edit.lines, f"{line} in {where}"))

    def _requirements(self, recipe: Recipe, component: str, value: str | None) -> tuple[str, ...] | None:
        """Return the Python packages of a layer with one of them at a version, or without it; None if it is not among
        them."""
        packages: tuple[str, ...] = getattr(recipe, "packages", ())
        named = [[name for name, _ in required_components((text,), self._matrix)] for text in packages]
        if [component] not in named:
            return None
        at = named.index([component])
        head = re.split(r"[<>=!~\s]", packages[at], maxsplit=1)[0]
        new = (f"{head}=={value}",) if value is not None else ()
        return (*packages[:at], *new, *packages[at + 1 :])


def new_layers(before: Edit, after: Edit) -> set[str]:
    """Return the layers of the lines that an edit adds to another."""
    return {line.partition(":")[0] for line in after.lines[len(before.lines) :]}


def version_of(recipe: Recipe, value: str) -> Recipe | None:
    """Return a recipe with this version; its label is the channel of PyTorch's own index."""
    public, _, label = value.partition("+")
    if bool(label) != bool(getattr(recipe, "channel", "")):
        return None
    return changed_recipe(recipe, version=public, **({"channel": label} if label else {}))


def changed_recipe(recipe: Recipe, **options: Any) -> Recipe | None:
    """Return a recipe with other options; None if it refuses them."""
    try:
        return replace(recipe, **options)
    except (OptionError, TypeError):
        return None
