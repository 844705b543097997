"""Changes to a request that is impossible: the nearest possible combinations, cheapest first.

One component is freed at a time, and each of its values tried together with all other requirements; if no other version
of one component helps, two at a time; if that does not help either, each conflict is resolved by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, combinations, islice

from envbuild.matrix.answer.fix_trial import FREE, Budget, Rules, Task, Trial
from envbuild.matrix.answer.plan_filter import PlanFilter
from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.fact_table import PURPOSE, FactTable
from envbuild.matrix.solve.encoding import Core, Request

PLANS = 200  # plans that are tried: about a second. A count, so that a busy machine proposes the same
REACHES = 100  # plans more, to learn how far a change reaches
PAIRS = 4  # pairs of components that are proposed
NEAR = 24  # values of each component of a pair that are tried
NAMES = 8  # names that are proposed in place of one
SPARE = 2  # components of this cost or less may also be left out
LEFT_OUT = 3  # what that costs more than another version


@dataclass(frozen=True, slots=True)
class Change:
    """`component` becomes `value` (None: it is left out). `reach`: ``>=`` or ``<=`` when every known value from there
    on works as well. `others`: further names that work."""

    component: str
    value: str | None
    reach: str = ""
    others: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the change as users write it: ``torch>=2.1``, ``gpu=A100``; ``leave apex out``."""
        if self.value is None:
            return f"leave {self.component} out"
        return f"{self.component}{self.reach or '='}{_short(self.value) if self.reach == '>=' else self.value}"


@dataclass(frozen=True, slots=True)
class Fix:
    """Changes that together make the request possible, what they cost, and the plan that is then picked. `also`:
    further changes that other conflicts of the request need."""

    changes: tuple[Change, ...]
    cost: int
    assignment: list[int]
    also: tuple[Change, ...] = ()


def find_fixes(
    matrix: FactTable,
    requests: Sequence[Request],
    conflicts: Sequence[Core],
    waived: Collection[str] = (),
    good: PlanFilter | None = None,
    plans: int = PLANS,
    rules: Rules = FREE,
) -> list[Fix]:
    """Return what resolves all `conflicts` of `requests` at once, cheapest first: single changes, or else pairs. Only
    plans that are `good` are proposed. Empty when nothing is found among `plans`."""
    task = Task(matrix, requests, waived, good, Budget(plans), frozenset(), rules)
    return _find(task, [conflict.components() for conflict in conflicts])


def find_fixes_of_one(
    matrix: FactTable,
    requests: Sequence[Request],
    conflict: Core,
    others: Iterable[Core],
    waived: Collection[str] = (),
    good: PlanFilter | None = None,
    plans: int = PLANS,
    rules: Rules = FREE,
) -> list[Fix]:
    """Return what resolves one conflict when the `others` are ignored."""
    others = list(others)
    ignored = frozenset(row for other in others for row in other.aside)
    dropped = [other.requests[-1] for other in others if not other.rows]  # requests that contradict each other
    kept = [request for request in requests if request not in dropped]
    task = Task(matrix, kept, waived, good, Budget(plans), ignored, rules)
    return _find(task, [conflict.components()])


def _find(task: Task, conflicts: Sequence[Collection[str]]) -> list[Fix]:
    """Return what resolves all `conflicts`, each a collection of its components. A change resolves only a conflict that
    it takes part in."""
    fixed = task.rules.fixed
    conflicts = [{*conflict, *_leading_components(task, conflict)} for conflict in conflicts]
    names = sorted({name for conflict in conflicts for name in conflict} - fixed, key=partial(_cost, task))
    nearest: list[tuple[Fix, Reach | None]] = []
    for name in sorted(names, key=lambda name: name not in task.rules.sets):  # few plans answer all of these
        if all(name in conflict for conflict in conflicts):
            nearest += _change_one(task, name) if name not in task.rules.leaving else []
            nearest += [(fix, None) for fix in _leave_out(task, name)]
    task.budget.add(REACHES)
    found = [_as_far_as_it_works(fix, reach) for fix, reach in nearest]  # once each component had its tries
    if all(fix.cost >= PURPOSE or fix.changes[0].value is None for fix in found):
        alone = fixed.union(task.rules.sets, task.rules.leaving)
        alone |= {change.component for fix in found for change in fix.changes}  # one of these does without a second
        asked = sorted({request.component for request in task.requests if request.id} - alone, key=partial(_cost, task))
        pairs = sorted(combinations(asked, 2), key=lambda pair: _cost(task, pair[0])[0] + _cost(task, pair[1])[0])
        for pair in pairs:
            if len(found) < PAIRS and all(set(pair) & set(conflict) for conflict in conflicts):
                found += _change_two(task, *pair)
    once = {fix.changes: fix for fix in reversed(found)}
    return sorted((fix for fix in found if once[fix.changes] is fix), key=lambda fix: fix.cost)


def _leading_components(task: Task, conflict: Collection[str]) -> list[str]:
    """Return the components that change together with one of `conflict`."""
    sets = task.rules.sets
    return [name for name in sets if any(other in conflict for one in sets[name] for other in one)]


def _cost(task: Task, name: str) -> tuple[int, str]:
    return task.matrix.components[task.matrix.number[name]].cost, name


# --- one component


@dataclass(frozen=True, slots=True)
class Reach:
    """The values `farther` than a change of the component `at`, which may work as well: `sign` is its ``>=`` or ``<=``
    then."""

    sign: str
    trial: Trial
    at: int
    farther: Sequence[int]


def _as_far_as_it_works(fix: Fix, reach: Reach | None) -> Fix:
    """Return a change of one component as a bound, where all farther values work."""
    if reach is None or not reach.farther or not reach.trial.all_work(reach.at, reach.farther):
        return fix
    return replace(fix, changes=(replace(fix.changes[0], reach=reach.sign),))


def _change_one(task: Task, name: str) -> list[tuple[Fix, Reach | None]]:
    """Return the nearest value on either side with which everything else is satisfied, and what is beyond it."""
    if name in task.rules.sets:
        return [(fix, None) for fix in _change_set(task, name)]
    trial = Trial(task, (name,))
    at = task.matrix.number[name]
    cost = _cost(task, name)[0]
    if task.matrix.components[at].kind == "name":
        near = list(islice(trial.working(at, trial.near(name)), NAMES))
        if not near:
            return []
        names = [task.matrix.values_of(at, bit)[0] for bit, _ in near]
        return [(Fix((Change(name, names[0], others=tuple(names[1:])),), cost, near[0][1]), None)]
    found: list[tuple[Fix, Reach | None]] = [
        (Fix((Change(name, task.matrix.values_of(at, bit)[0]),), cost, plan), None)
        for bit, plan in islice(trial.working(at, trial.builds(name)), 1)
    ]
    for side, reach in zip(trial.sides(name), (">=", "<="), strict=True):
        newest = side[-1:] if reach == ">=" else []  # where those next to the requested one lead to what is unknown
        for bit, plan in islice(chain(trial.working(at, side), trial.working(at, newest)), 1):
            fix = Fix((Change(name, task.matrix.values_of(at, bit)[0]),), cost, plan)
            found.append((fix, Reach(reach, trial, at, side[side.index(bit) + 1 :])))
    return found


def _change_set(task: Task, name: str) -> list[Fix]:
    """Return another value of a component that changes together with others."""
    number, sets = task.matrix.number, task.rules.sets[name]
    trial = Trial(task, tuple(dict.fromkeys(other for one in sets for other in one)))
    for one in sets:
        plan = trial.plan({number[other]: mask for other, mask in one.items()})
        if plan is not None and (task.good is None or task.good(plan)):
            value = task.matrix.value(number[name], one[name])
            return [Fix((Change(name, value),), _cost(task, name)[0], plan)]
    return []


def _leave_out(task: Task, name: str) -> list[Fix]:
    cost = _cost(task, name)[0]
    if (cost > SPARE and name not in task.rules.leaving) or name in task.rules.ties:
        return []
    at = task.matrix.number[name]
    plan = Trial(task, (), left_out=name).plan({})
    if plan is None or plan[at] != ABSENT or not (task.good is None or task.good(plan)):
        return []
    return [Fix((Change(name, None),), cost + LEFT_OUT, plan)]


# --- two components


def _change_two(task: Task, cheap: str, dear: str) -> list[Fix]:
    """Return the nearest value of the dearer component for which the cheaper one has any, and then the nearest of
    that."""
    trial = Trial(task, (cheap, dear))
    first, second = task.matrix.number[cheap], task.matrix.number[dear]
    for bit in trial.possible({}, second, trial.near(dear)[:NEAR]):
        for other, plan in islice(trial.working(first, trial.near(cheap)[:NEAR], {second: bit}), 1):
            changes = [(dear, second, bit), (cheap, first, other)]
            changed = tuple(Change(name, task.matrix.values_of(at, mask)[0]) for name, at, mask in changes)
            return [Fix(changed, _cost(task, cheap)[0] + _cost(task, dear)[0], plan)]
    return []


def _short(value: str) -> str:
    """Return ``2.1`` for ``2.1.0``: as a lower bound it is the same."""
    while value.endswith(".0") and value.count(".") > 1:
        value = value.removesuffix(".0")
    return value
