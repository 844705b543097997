"""The answer of the version matrix about an image, and the versions that its spec leaves out.

`pick_versions` chooses before anything is locked; `check_locked_versions` checks what was locked. Both refuse a
conflict (ConflictError) and a combination that no fact covers (UnknownError). The caller reports conditions and
disputes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from envbuild.core.distributions import is_image
from envbuild.core.errors import ConflictError, Finding, UnknownError
from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.verdict import Answer
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.solve.request import Ask, ask_place, locked_asks, override_asks
from envbuild.spec.image_spec import ImageSpec, fill_versions
from envbuild.spec.matrix_request import image_request
from envbuild.spec.target import Target

if TYPE_CHECKING:
    from envbuild.matrix.answer.conflict import Conflict

UNKNOWN_HINT = (
    "write the fact into facts/NAME.yaml of the project, with its source, "
    "or under waivers of the spec: - {{fact: {}, reason: …}}"
)


def pick_versions(
    spec: ImageSpec, target: Target, matrix: FactTable, locked: Mapping[str, str]
) -> tuple[ImageSpec, Answer]:
    """Return the spec with a version in every recipe whose component is in the matrix, and the answer with them.
    `locked`: component → the version picked when the image was locked; it is picked again while it is consistent."""
    answer = answer_with_picks(spec, image_request(spec, target, matrix), matrix, locked)
    raise_for_verdict(with_spec_hints(answer, spec, target, matrix), spec)
    return fill_versions(spec, answer.chosen), answer


def answer_with_picks(spec: ImageSpec, asks: Sequence[Ask], matrix: FactTable, locked: Mapping[str, str]) -> Answer:
    """Return the answer about `asks`, with the picks of an older lock (component → version) if they fit."""
    left_out = components_without_version(spec)
    previous = locked_asks({name: value for name, value in locked.items() if name in left_out}, matrix)
    answer = check(matrix, (*asks, *previous), image_waivers(spec), satisfied_conditions(spec)) if previous else None
    if answer is None or answer.verdict in ("conflict", "unknown"):
        answer = check(matrix, asks, image_waivers(spec), satisfied_conditions(spec))
    return answer


def satisfied_conditions(spec: ImageSpec) -> frozenset[str]:
    """Return the conditions that the recipes of an image satisfy."""
    return frozenset(fact for recipe in spec.recipes.values() for fact in recipe.meets)


def image_waivers(spec: ImageSpec) -> tuple[Waiver, ...]:
    """Return the spec's waivers. The distribution of a third-party image need not be a fact: the lock reads it from the
    image."""
    return (
        (*spec.waivers, Waiver("base-os", "read from the image when it is locked"))
        if is_image(spec.base)
        else spec.waivers
    )


def picked_versions(spec: ImageSpec, answer: Answer) -> dict[str, str]:
    """Return component → the version that was picked for a recipe of `spec` that has none."""
    left_out = components_without_version(spec)
    return {name: answer.chosen[name] for name in sorted(left_out)}


def components_without_version(spec: ImageSpec) -> set[str]:
    """Return the components whose recipes have no version."""
    return {recipe.component for recipe in spec.recipes.values() if recipe.component and not recipe.version}


def check_locked_versions(spec: ImageSpec, target: Target, matrix: FactTable, versions: Mapping[str, str]) -> Answer:
    """Return the answer of the matrix about the versions that were locked (component → version)."""
    answer = check(
        matrix,
        override_asks(image_request(spec, target, matrix), locked_asks(versions, matrix)),
        image_waivers(spec),
        satisfied_conditions(spec),
    )
    raise_for_verdict(with_spec_hints(answer, spec, target, matrix), spec)
    return answer


def with_spec_hints(answer: Answer, spec: ImageSpec, target: Target, matrix: FactTable) -> Answer:
    """Return an answer about an image with lines of its spec as hints."""
    if not answer.exit_code:
        return answer
    from envbuild.spec.spec_hints import with_spec_lines  # with the modules that search changes

    return with_spec_lines(answer, spec, target, matrix, image_waivers(spec))


def raise_for_verdict(answer: Answer, spec: ImageSpec) -> None:
    """Raise ConflictError or UnknownError when the answer is one."""
    if answer.verdict == "conflict":
        raise ConflictError.of(
            [
                Finding(conflict.text, conflict_place(conflict.asks, spec), conflict_hint(conflict))
                for conflict in answer.conflicts
            ]
        )
    if answer.verdict == "unknown":
        raise UnknownError.of(
            [
                Finding(
                    unknown.text, ask_place(unknown.of, answer.asks) or str(spec.path), UNKNOWN_HINT.format(unknown.id)
                )
                for unknown in answer.unknown
            ]
        )


def conflict_hint(conflict: Conflict) -> str:
    """Return the hint of a conflict: versions that work, and the waiver of its first fact."""
    facts = [one for one in conflict.reasons if not one.default]
    first = next((one.fact for one in facts if one.kind != "provides"), facts[0].fact if facts else "")
    waive = f"override the fact under waivers of the spec: - {{fact: {first}, reason: …}}" if first else ""
    return "; or ".join(filter(None, (conflict.hint, waive)))


def conflict_place(asks: tuple[Ask, ...], spec: ImageSpec) -> str:
    """Return the place in the spec that the user can change."""
    return next((ask.where for ask in reversed(asks) if ask.where), str(spec.path))
