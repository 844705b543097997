"""The nearest changes that work, for each conflict of a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from envbuild.matrix.answer.change_rules import rule_stages
from envbuild.matrix.answer.fix_trial import Rules
from envbuild.matrix.answer.fixes import PLANS, Fix, find_fixes, find_fixes_of_one
from envbuild.matrix.answer.plan_filter import PlanFilter
from envbuild.matrix.facts.fact_table import PURPOSE
from envbuild.matrix.solve.encoding import Core
from envbuild.matrix.solve.lasting_gaps import can_be_covered, unheard_requests
from envbuild.matrix.solve.query import Query

SHARED = 3  # changes of other conflicts that are proposed for one without any


def fixes_by_conflict(case: Query, found: Sequence[Core], good: PlanFilter) -> list[list[Fix]]:
    """Return the nearest changes that work, per conflict: those that resolve everything at once, else those that
    resolve it when the others are ignored. None leads to what is unknown. Other hardware is proposed only if nothing
    else helps, and never for an image."""
    found_fixes: list[list[Fix]] = [[] for _ in found]
    every = [*found, *lasting_cores(case)]
    known = rule_stages(case, known=True)
    singly = case.image or can_be_covered(case.unrelatable(), 2)  # by a change, and by what it also needs
    for at, rules in enumerate(rule_stages(case)):
        some = find_fixes(case.matrix, case.wanted, every, case.waived, good, rules=known[at]) if known else []
        if whole := prefer_plain_fixes(case, some):
            return [
                some or [fix for fix in whole if touches(fix, core)] or whole
                for some, core in pairs(found_fixes, found)
            ]
        if len(found) > 1 and singly:
            found_fixes = [some or fixes_of_one(case, core, found, rules) for some, core in pairs(found_fixes, found)]
        if all(found_fixes):
            break
    return found_fixes


def pairs(found_fixes: Sequence[list[Fix]], found: Sequence[Core]) -> Iterator[tuple[list[Fix], Core]]:
    return zip(found_fixes, found, strict=True)


def fixes_of_one(case: Query, core: Core, found: Sequence[Core], rules: Rules) -> list[Fix]:
    """Return the changes that resolve one conflict when the others are ignored."""
    others = [other for other in found if other is not core]
    plans = PLANS // len(found)
    return prefer_plain_fixes(
        case, find_fixes_of_one(case.matrix, case.wanted, core, others, case.waived, plans=plans, rules=rules)
    )


def lasting_cores(case: Query) -> list[Core]:
    """Return the requests that have to change before anything can be known: those for versions that no fact lists."""
    return [Core.of([request]) for request in unheard_requests(case.matrix, case.wanted, case.waived)]


def prefer_plain_fixes(case: Query, some: list[Fix]) -> list[Fix]:
    """Return the fixes without other hardware and without components that no user requests by name, if there are any;
    else all."""

    def plain(fix: Fix) -> bool:
        components = [case.matrix.component(change.component) for change in fix.changes]
        return all(component and component.cost < PURPOSE and not component.hidden for component in components)

    return [fix for fix in some if plain(fix)] or some


def touches(fix: Fix, core: Core) -> bool:
    return any(change.component in core.components() for change in fix.changes)


def share_fixes(found: Sequence[Core], found_fixes: Sequence[list[Fix]]) -> list[list[Fix]]:
    """Return the changes of each conflict, which all resolve the whole request; of one without any, those of the other
    conflicts, with the change of its own components first."""
    every = list({(fix.changes, fix.also): fix for some in found_fixes for fix in some}.values())
    return [
        some or [turn for fix in every for turn in turned(fix, core)][:SHARED]
        for some, core in pairs(found_fixes, found)
    ]


def turned(fix: Fix, core: Core) -> list[Fix]:
    """Return a change with its further needs as one that begins with a component of this conflict, if it has any."""
    if touches(fix, core) or not fix.also:
        return [fix] if touches(fix, core) else []
    back = replace(fix, changes=fix.also, also=fix.changes)
    return [back] if touches(back, core) else []


def fix_text(fix: Fix) -> str:
    """``torch>=2.1``, ``torch=2.4.0 with cuda=12.1``, ``torch>=2.1, also needs driver>=580``."""
    text = " with ".join(change.text for change in fix.changes)
    return f"{text}, also needs {' with '.join(change.text for change in fix.also)}" if fix.also else text
