"""Proposed changes, typed back: the question with the change is answered as any other before the change is proposed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from envbuild.core.errors import SpecError, UnknownError
from envbuild.matrix.answer.conflict_core import find_cores
from envbuild.matrix.answer.fix_trial import FREE
from envbuild.matrix.answer.fixes import Change, Fix, find_fixes
from envbuild.matrix.facts.fact_table import PURPOSE
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.sat.solver import UndecidedError
from envbuild.matrix.solve.encoding import Core
from envbuild.matrix.solve.lasting_gaps import can_be_covered
from envbuild.matrix.solve.query import Query
from envbuild.matrix.solve.request import Ask, parse_ask
from envbuild.matrix.solve.unknowns import find_unknowns, unheard_ranges

TYPED = 8  # questions that are answered for the hints of one answer
PLANS = 40  # plans that are tried for the further needs of a change


class TypedBack:
    """The answers to a question with changes, each computed once, at most `TYPED` of them."""

    def __init__(self, case: Query, found: Sequence[Core] = ()) -> None:
        """Prepare the answers to changes of `case`; `found`: its conflicts."""
        self._case, self._found = case, found
        self._unrelatable = case.unrelatable()
        self._known: dict[tuple[Change, ...], Query | None] = {}

    def keep_working(self, fixes: Iterable[Fix]) -> list[Fix]:
        """Return those of the `fixes` after which the question has an answer; of one that leaves another conflict,
        including its further needs."""
        kept = (self._complete(fix) for fix in fixes)
        return [fix for fix in kept if fix is not None]

    def _complete(self, fix: Fix) -> Fix | None:
        """Return the fix, with what it also needs; None if it leads to no answer."""
        gone = {change.component for change in fix.changes if change.value is None}
        if not can_be_covered([pair for pair in self._unrelatable if not pair & gone], 1):
            return None
        query = self._query(fix.changes)
        if query is None:
            return None
        if query.plan is not None:
            return fix if _is_answered(query) else None
        changed = {change.component for change in fix.changes}
        rest = [core for core in self._found if changed.isdisjoint(core.components())]
        for more in _fixes_of_rest(query, fix.changes, rest):
            whole = self._query((*fix.changes, *more.changes))
            if whole is not None and whole.plan is not None and _is_answered(whole):
                return replace(fix, also=more.changes)
        return None

    def _query(self, changes: tuple[Change, ...]) -> Query | None:
        """Return the question with these changes; None for one that cannot be decided, or when enough are answered."""
        if changes not in self._known:
            self._known[changes] = _ask_again(self._case, changes) if len(self._known) < TYPED else None
        return self._known[changes]


def _ask_again(case: Query, changes: Sequence[Change]) -> Query | None:
    try:
        asks = changed_asks(case, changes)
        if unheard_ranges(case.matrix, asks):
            return None
        return Query.of(case.matrix, asks, [Waiver(fact, "") for fact in case.waived])
    except (SpecError, UnknownError):
        return None


def changed_asks(case: Query, changes: Sequence[Change]) -> tuple[Ask, ...]:
    """Return the requirements with these changes in the place of those about the same components. Raises SpecError."""
    names = {change.component for change in changes}
    kept = [ask for ask in case.asks if ask.component not in names]
    new = [
        parse_ask(case.matrix, change.component, change.text.removeprefix(change.component).removeprefix("="))
        for change in changes
        if change.value is not None
    ]
    return (*kept, *new)


def _is_answered(query: Query) -> bool:
    assert query.plan is not None
    return not find_unknowns(query.matrix, query.plan.assignment, query.asks, query.waived)


def _fixes_of_rest(query: Query, changes: Sequence[Change], rest: Sequence[Core]) -> list[Fix]:
    """Return what resolves the conflicts that these changes leave, without changing their components again. `rest`:
    those of them that were there before."""
    hardware = {component.name for component in query.matrix.components if component.cost >= PURPOSE}
    rules = FREE.fixing(hardware.union(change.component for change in changes))
    try:
        cores = rest or find_cores(query.matrix, query.wanted, query.waived, seconds=0.1)
    except UndecidedError:
        return []
    return find_fixes(query.matrix, query.wanted, cores, query.waived, None, PLANS, rules)[:2]
