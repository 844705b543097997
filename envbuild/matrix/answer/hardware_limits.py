"""The hint of an image that no change of one or two versions helps: which of its versions are incompatible with the
target's hardware, from which version on each would be compatible, and which other hardware would do."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.matrix.answer.conflict_reasons import needed_asks
from envbuild.matrix.answer.fix_trial import Rules
from envbuild.matrix.answer.fixes import PLANS, Change, find_fixes
from envbuild.matrix.answer.plan_filter import KnownPlans
from envbuild.matrix.facts.fact_table import HARDWARE
from envbuild.matrix.solve.encoding import Core
from envbuild.matrix.solve.phrasing import component_text, join_and
from envbuild.matrix.solve.query import Query

REACHES = {">=": " or newer", "<=": " or older", "": ""}


def hardware_hint(case: Query, found: Sequence[Core], rules: Rules) -> str:
    """Return one sentence for all conflicts of an image; `rules`: what may be changed in its spec. Each conflict is
    examined by itself, so what the sentence names is necessary and may not be sufficient."""
    plans = PLANS // (2 * len(found))
    hardware = {component.name for component in case.matrix.components if component.cost >= HARDWARE}
    versions: list[str] = []
    newer: dict[str, str] = {}
    targets: dict[str, str] = {}
    on: list[str] = []
    for core in found:
        asked = needed_asks(case, core)
        theirs = [ask for ask in asked if ask.component != "arch" and ask.by.startswith("target ")]
        if not theirs:
            continue
        versions += [ask.text for ask in asked if not ask.by]
        on += [ask.text for ask in theirs]
        for change in single_changes(case, core, rules.fixing(hardware), plans):
            newer[change.component] = change.text
        others = {request.component for request in core.requests} - {ask.component for ask in theirs}
        for change in single_changes(case, core, Rules(frozenset(others)), plans):
            value = component_text(case.matrix, change.component, {change.component: change.value or ""})
            targets[value] = targets.get(value) or REACHES[change.reach]
    if not versions:
        return ""
    obstacles, nodes = _join_once(versions), _join_once(on)
    verb = "are" if len(set(versions)) > 1 else "is"
    head = f"no change of one or two versions was found to work: {obstacles} {verb} incompatible with {nodes}"
    take = f"{join_and(newer.values())} and versions of the others that go with it" if newer else ""
    other = f"a target of {' or '.join(value + reach for value, reach in targets.items())}" if targets else ""
    return f"{head}; take {', or '.join(filter(None, (take, other or 'another target')))}"


def single_changes(case: Query, core: Core, rules: Rules, plans: int) -> list[Change]:
    """Return the single changes that resolve one conflict when nothing else is required, cheapest first, one of each
    component; none leads to what is unknown."""
    known = KnownPlans(case, case.involved(core))
    some = find_fixes(case.matrix, core.requests, [core], case.waived, known, plans, rules)
    changes = [fix.changes[0] for fix in some if len(fix.changes) == 1 and fix.changes[0].value is not None]
    return list({change.component: change for change in reversed(changes)}.values())[::-1]


def _join_once(texts: Sequence[str]) -> str:
    return join_and(dict.fromkeys(texts))
