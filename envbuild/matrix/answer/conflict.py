"""Conflicts as sentences: the reasons, and what to change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from envbuild.matrix.answer import conflict_core
from envbuild.matrix.answer.change_rules import spec_rules
from envbuild.matrix.answer.clauses import because_clauses
from envbuild.matrix.answer.conflict_fixes import fix_text, fixes_by_conflict, share_fixes
from envbuild.matrix.answer.conflict_reasons import core_reasons, needed_asks
from envbuild.matrix.answer.fixes import Fix
from envbuild.matrix.answer.hardware_limits import hardware_hint
from envbuild.matrix.answer.plan_filter import PlanFilter
from envbuild.matrix.answer.typed_back import TypedBack
from envbuild.matrix.solve.phrasing import Reason, conflict_sentence
from envbuild.matrix.solve.query import Query, undecided_as_unknown
from envbuild.matrix.solve.request import Ask


@dataclass(frozen=True, slots=True)
class Conflict:
    """Facts and requirements that contradict each other. `minimal`: without any one of them the rest is possible.
    `fixes` are the nearest changes that work as texts, cheapest first, `proposed` the same as values; `also` are other
    reasons against the same `asks`. `hardware`: of an image for which there is no such change, the hardware that would
    be needed."""

    text: str
    reasons: tuple[Reason, ...]
    asks: tuple[Ask, ...]
    minimal: bool
    fixes: tuple[str, ...]
    also: tuple[str, ...] = ()
    hardware: str = ""
    proposed: tuple[Fix, ...] = ()

    @property
    def hint(self) -> str:
        return ", or ".join(self.fixes) or self.hardware


def find_conflicts(case: Query, good: PlanFilter) -> tuple[Conflict, ...]:
    """Return every conflict of a request as a sentence, with the nearest changes that work. Conflicts of the same
    `asks` are one. `good` decides whether a change leads to a plan that is known."""
    with undecided_as_unknown():
        found = conflict_core.find_cores(case.matrix, case.wanted, case.waived)
    found_fixes = fixes_by_conflict(case, found, good)
    if not case.image:
        typed = TypedBack(case, found)
        found_fixes = share_fixes(found, [typed.keep_working(some) for some in found_fixes])
    far = hardware_hint(case, found, spec_rules(case)) if case.image and not all(found_fixes) else ""
    by_asks: dict[tuple[Ask, ...], Conflict] = {}
    same_cause: dict[tuple[Ask, ...], list[str]] = {}
    for core, some in zip(found, found_fixes, strict=True):
        involved = needed_asks(case, core)
        known = {ask.component: ask.constraint.text for ask in involved}
        reasons = core_reasons(case, core, known)
        clauses = because_clauses(case.matrix, core, reasons, known)
        text = conflict_sentence(clauses, reasons, involved, case.matrix)
        if (first := by_asks.get(involved)) is None:
            fixed = tuple(map(fix_text, some))
            by_asks[involved] = Conflict(
                text, reasons, involved, core.minimal, fixed, hardware="" if fixed else far, proposed=tuple(some)
            )
            continue
        new = [clause for clause in clauses if clause not in first.text]
        if 0 < len(new) < len(clauses):
            same_cause.setdefault(involved, []).append(" and ".join(new))
        else:
            first = replace(first, also=(*first.also, text))
        by_asks[involved] = replace(first, reasons=(*first.reasons, *reasons))
    for involved, texts in same_cause.items():  # what they share with the first is stated there, once
        by_asks[involved] = replace(by_asks[involved], also=("; ".join(texts), *by_asks[involved].also))
    return tuple(by_asks.values())
