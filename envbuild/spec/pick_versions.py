"""Settle: what the version matrix says of an image, and the versions that its spec leaves out.

`settled` picks before anything is locked; `checked` looks at what was locked. Both refuse a conflict (ConflictError)
and a combination that no fact speaks of (UnknownError); conditions and disputes are for the caller to tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from envbuild.core.distributions import is_image
from envbuild.core.errors import ConflictError, Finding, UnknownError
from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.verdict import Answer
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.model import Waiver
from envbuild.matrix.solve.request import Ask, overlaid, picked, place_of
from envbuild.spec.image_spec import ImageSpec, filled
from envbuild.spec.matrix_request import of_image
from envbuild.spec.target import Target

if TYPE_CHECKING:
    from envbuild.matrix.answer.conflict import Conflict

SAY = (
    "write the fact into facts/NAME.yaml of the project, with its source, "
    "or under waivers of the spec: - {{fact: {}, reason: …}}"
)


def settled(spec: ImageSpec, target: Target, matrix: FactTable, kept: Mapping[str, str]) -> tuple[ImageSpec, Answer]:
    """The spec with a version in every recipe that the matrix knows, and the answer that gave them. `kept`: component →
    the version picked when the image was locked; it stays while it is consistent."""
    asks = of_image(spec, target, matrix)
    left_out = open_in(spec)
    stay = picked({name: value for name, value in kept.items() if name in left_out}, matrix)
    answer = check(matrix, (*asks, *stay), waived(spec), met(spec)) if stay else None
    if answer is None or answer.verdict in ("conflict", "unknown"):
        answer = check(matrix, asks, waived(spec), met(spec))
    refuse(answer, spec)
    return filled(spec, answer.chosen), answer


def met(spec: ImageSpec) -> frozenset[str]:
    """The conditions that the recipes of an image see to."""
    return frozenset(fact for recipe in spec.recipes.values() for fact in recipe.meets)


def waived(spec: ImageSpec) -> tuple[Waiver, ...]:
    """The spec's waivers. Which distribution somebody's image is need not be a fact: the lock looks."""
    return (
        (*spec.waivers, Waiver("base-os", "read from the image when it is locked"))
        if is_image(spec.base)
        else spec.waivers
    )


def chosen(spec: ImageSpec, answer: Answer) -> dict[str, str]:
    """Component → the version that was picked for a recipe of `spec` that has none."""
    left_out = open_in(spec)
    return {name: answer.chosen[name] for name in sorted(left_out)}


def open_in(spec: ImageSpec) -> set[str]:
    """The components whose recipes have no version."""
    return {recipe.component for recipe in spec.recipes.values() if recipe.component and not recipe.version}


def checked(spec: ImageSpec, target: Target, matrix: FactTable, versions: Mapping[str, str]) -> Answer:
    """What the matrix says of the versions that were locked (component → version)."""
    answer = check(matrix, overlaid(of_image(spec, target, matrix), picked(versions, matrix)), waived(spec), met(spec))
    refuse(answer, spec)
    return answer


def refuse(answer: Answer, spec: ImageSpec) -> None:
    """Raises ConflictError or UnknownError when the answer is one."""
    if answer.verdict == "conflict":
        raise ConflictError.of(
            [Finding(conflict.text, place(conflict.asks, spec), advice(conflict)) for conflict in answer.conflicts]
        )
    if answer.verdict == "unknown":
        raise UnknownError.of(
            [
                Finding(unknown.text, place_of(unknown.of, answer.asks) or str(spec.path), SAY.format(unknown.id))
                for unknown in answer.unknown
            ]
        )


def advice(conflict: Conflict) -> str:
    """What to type."""
    facts = [one for one in conflict.reasons if not one.default]
    first = next((one.fact for one in facts if one.kind != "provides"), facts[0].fact if facts else "")
    waive = f"where you know better, under waivers of the spec: - {{fact: {first}, reason: …}}" if first else ""
    return "; ".join(filter(None, (conflict.hint, waive)))


def place(asks: tuple[Ask, ...], spec: ImageSpec) -> str:
    """Where in the spec the person can change something."""
    return next((ask.where for ask in reversed(asks) if ask.where), str(spec.path))
