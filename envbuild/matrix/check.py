"""The answer to a request: valid, conflict, conditional, disputed or unknown, and because of what."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from envbuild.matrix import version
from envbuild.matrix.blanks import Unknown, blanks
from envbuild.matrix.case import Case, spoken_of, uncalled, unheard
from envbuild.matrix.conflict import Conflict, conflicts, sorted_out, written
from envbuild.matrix.explain import Core, Request
from envbuild.matrix.fixes import Good, fixes
from envbuild.matrix.masks import Matrix
from envbuild.matrix.problem import picks
from envbuild.matrix.request import Ask
from envbuild.matrix.words import Reason, listed, reason, said
from envbuild.spec import Waiver

NEAR = 100  # plans that are looked at for what is known nearby
FEW = 5  # plans that are looked at for each change that is to be proposed
VERDICTS = {"valid": 0, "conditional": 0, "disputed": 0, "conflict": 3, "unknown": 9}  # → exit code


@dataclass(frozen=True, slots=True)
class Answer:
    """`chosen`: component → value of all that are there, asked for, picked, or brought by others. `reasons` are the
    facts that speak of them; `needs` those about what was not asked for (the host's driver); `superseded` those that a
    better source contradicts; `nearest`, where something is unknown, the nearest changes to what is known."""

    verdict: str
    asks: tuple[Ask, ...]
    chosen: Mapping[str, str] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    conditions: tuple[Reason, ...] = ()
    disputes: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()
    needs: tuple[Reason, ...] = ()
    reasons: tuple[Reason, ...] = ()
    superseded: tuple[Reason, ...] = ()
    waived: tuple[Waiver, ...] = ()
    notes: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return VERDICTS[self.verdict]

    @property
    def used(self) -> list[Reason]:
        """All that the answer rests on."""
        groups = [conflict.reasons for conflict in self.conflicts]
        groups += [self.conditions, self.disputes, self.warnings, self.needs, self.reasons]
        return [one for group in groups for one in group]

    @property
    def facts(self) -> tuple[str, ...]:
        """Ids of all facts that the answer rests on."""
        return tuple(sorted({one.fact for one in self.used}))


def check(
    matrix: Matrix, asks: Sequence[Ask], waivers: Sequence[Waiver] = (), met: Collection[str] = frozenset()
) -> Answer:
    """Answer a request. `met`: facts whose condition is seen to. Raises SpecError for a waiver of a fact that does not
    exist."""
    case = Case.of(matrix, asks, waivers)
    if case.plan is None:
        return Answer("conflict", case.asks, conflicts=conflicts(case, judge(case)), waived=tuple(waivers))
    answer = judged(case.matrix, case.plan.assignment, case.asks, case.waived, tuple(waivers), met)
    strangers = tuple(unheard_of(matrix, asks))
    if strangers and "unheard" not in case.waived:
        answer = replace(answer, verdict="unknown", unknown=(*answer.unknown, *strangers))
    if not answer.unknown:
        return answer
    return replace(answer, nearest=nearest(case, answer.unknown, judge(case)))


def unheard_of(matrix: Matrix, asks: Sequence[Ask]) -> Iterator[Unknown]:
    """Versions that are asked for of components whose versions are all known, and are none of them."""
    for name, versions in unheard(matrix, asks).items():
        component = matrix.component(name)
        if component and (component.complete or component.kind == "sm"):
            yield Unknown("unheard", (name,), f"no fact knows {listed([f'{name} {value}' for value in versions])}")


def judge(case: Case) -> Good:
    """Whether a plan is one to propose: it adds nothing of its own, and facts speak of all of it, or of an older choice
    of what the request leaves open."""
    matrix = case.matrix
    asked = {request.component for request in case.wanted}
    whole = {request.component: request.mask for request in case.wanted if request.id}

    @cache
    def known(pinned: tuple[tuple[str, int], ...]) -> bool:
        wanted = [*(Request("", name, mask) for name, mask in pinned), *(r for r in case.wanted if not r.id)]
        plan = picks(matrix, wanted, case.waived)
        if plan is None:
            return False
        plan = spoken_of(matrix, wanted, case.asks, case.waived, plan, FEW)
        return not blanks(matrix, plan.assignment, case.asks, case.waived)

    def good(assignment: list[int]) -> bool:
        if uncalled(matrix, assignment, asked, case.waived):
            return False
        if not blanks(matrix, assignment, case.asks, case.waived):
            return True
        pinned = {}
        for name, mask in whole.items():
            value = assignment[matrix.number[name]]
            left_open = value & mask and mask & (mask - 1)
            pinned[name] = mask if left_open else value
        return known(tuple(sorted(pinned.items())))

    return good


def nearest(case: Case, unknown: Sequence[Unknown], good: Good) -> tuple[str, ...]:
    """The nearest changes after which nothing is unknown."""
    names = {name for one in unknown for name in one.of}
    involved = tuple(request for request in case.wanted if request.id and request.component in names)
    core = Core(involved, (), (), frozenset(), False)
    return tuple(map(written, sorted_out(case, fixes(case.matrix, case.wanted, [core], case.waived, good, NEAR))))


def judged(
    matrix: Matrix,
    assignment: Sequence[int],
    asks: Sequence[Ask],
    waived: frozenset[str],
    waivers: tuple[Waiver, ...],
    met: Collection[str] = frozenset(),
) -> Answer:
    """What the facts say of an assignment that breaks no hard one."""
    chosen = matrix.named(assignment)
    held = matrix.holding(assignment, waived)
    failing: dict[str, list[Reason]] = {"conditional": [], "disputed": [], "warn": []}
    reasons: list[Reason] = []
    needs: list[Reason] = []
    superseded: list[Reason] = []
    for one in held:
        told = reason(matrix, one.row, chosen)
        missing = [name for name in told.then if name not in chosen]
        if one.yields:
            claim = matrix.claim(one.row).allowed
            if any(not assignment[number] & allowed for number, allowed in claim.items()):
                superseded.append(told)
        elif one.fails and told.fact in met:
            reasons.append(told)
        elif one.fails and told.strength in failing:
            failing[told.strength].append(told)
        elif missing and told.scope == "container-start" and told.strength == "hard":
            needs.append(replace(told, text=listed([said(matrix, name, told.then[name], {}) for name in missing])))
        elif not missing:
            reasons.append(told)
    if failing["disputed"]:  # those who allow it are heard as well
        open_ones = [one for one in held if matrix.fact(one.row).strength == "disputed"]
        questions = {matrix.fact(one.row).question for one in open_ones if one.fails}
        allow = [one for one in open_ones if not one.fails and matrix.fact(one.row).question in questions]
        failing["disputed"] += [reason(matrix, one.row, chosen, plainly=True) for one in allow]
    missing_facts = blanks(matrix, assignment, asks, waived)
    verdict = (
        "unknown"
        if missing_facts
        else "disputed"
        if failing["disputed"]
        else "conditional"
        if failing["conditional"]
        else "valid"
    )
    return Answer(
        verdict,
        tuple(asks),
        chosen,
        unknown=tuple(missing_facts),
        conditions=tuple(failing["conditional"]),
        disputes=tuple(failing["disputed"]),
        warnings=tuple(failing["warn"]),
        needs=tuple(needs),
        reasons=tuple(reasons),
        superseded=tuple(superseded),
        waived=waivers,
        notes=tuple(newer(matrix, chosen)),
    )


def newer(matrix: Matrix, chosen: Mapping[str, str]) -> list[str]:
    """Says which versions are newer than all that the facts know."""
    notes = []
    for name, value in chosen.items():
        component = matrix.component(name)
        assert component is not None
        if component.complete and component.values and value not in component.values:
            newest = max(component.values, key=version.key)
            if version.public(value) > version.public(newest):
                seen = max(matrix.fact(row).source.seen for row in range(len(matrix.rows)) if name in matrix.when(row))
                notes.append(f"{name} {value} is newer than the facts, which end at {newest} and are of {seen}")
    return notes
