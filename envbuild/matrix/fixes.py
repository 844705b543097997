"""What to change in a request that cannot be met: the nearest combinations that can, cheapest first.

One component is freed at a time, and each of its values tried together with everything else that is asked for; where no
single change helps, two at a time; where that does not help either, each conflict is mended by itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice

from envbuild.matrix.atoms import ABSENT, reserve
from envbuild.matrix.constraint_masks import labelled
from envbuild.matrix.masks import HARD, HARDWARE, FactTable
from envbuild.matrix.problem import Core, Problem, Request
from envbuild.matrix.solver import Search, Undecided
from envbuild.matrix.value_order import ascending, interchangeable

PLANS = 200  # plans that are looked at: about a second. A count, so that a busy machine proposes the same
STEPS = 100_000  # for one value
PAIRS = 4  # pairs of components that are told
NEAR = 24  # values of each component of a pair that are tried
NAMES = 8  # names that are proposed in place of one
PATIENCE = 12  # values that are possible but not good before the search for better ones ends
LOOKS = 4  # values that are tried before it is looked whether any is left
SPARE = 2  # components of this cost or less may also be left out
LEFT_OUT = 3  # what that costs more than another version

Good = Callable[[list[int]], bool]


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be proposed. `fixed`: components that stay as they are. `ties`: component → those whose requests go when
    it changes, because one line of a spec says them all; it is not left out. `sets`: component → values of it and of
    others that change together, each as component → mask; nothing else is proposed for it."""

    fixed: frozenset[str] = frozenset()
    ties: Mapping[str, frozenset[str]] = field(default_factory=dict)
    sets: Mapping[str, Sequence[Mapping[str, int]]] = field(default_factory=dict)

    def fixing(self, names: Iterable[str]) -> Rules:
        """These rules with more that stays as it is."""
        return replace(self, fixed=self.fixed.union(names))


FREE = Rules()


@dataclass(frozen=True, slots=True)
class Change:
    """`component` becomes `value` (None: it is left out). `reach`: ``>=`` or ``<=`` when every known value from there
    on will do as well. `others`: further names that will do."""

    component: str
    value: str | None
    reach: str = ""
    others: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As people write it: ``torch>=2.1``, ``gpu=A100``; ``leave apex out``."""
        if self.value is None:
            return f"leave {self.component} out"
        return f"{self.component}{self.reach or '='}{_short(self.value) if self.reach else self.value}"


@dataclass(frozen=True, slots=True)
class Fix:
    """Changes that together make the request possible, what they cost, and the plan that is then picked."""

    changes: tuple[Change, ...]
    cost: int
    assignment: list[int]


def fixes(
    matrix: FactTable,
    requests: Sequence[Request],
    conflicts: Sequence[Core],
    waived: Collection[str] = (),
    good: Good | None = None,
    plans: int = PLANS,
    rules: Rules = FREE,
) -> list[Fix]:
    """What mends all `conflicts` of `requests` at once, cheapest first: single changes, or else pairs. Only plans that
    are `good` are proposed. Empty when nothing is found among `plans`."""
    finder = _Finder(matrix, requests, waived, good, Budget(plans), frozenset(), rules)
    return finder.find([conflict.components() for conflict in conflicts])


def fixes_of(
    matrix: FactTable,
    requests: Sequence[Request],
    conflict: Core,
    others: Iterable[Core],
    waived: Collection[str] = (),
    good: Good | None = None,
    plans: int = PLANS,
    rules: Rules = FREE,
) -> list[Fix]:
    """What mends one conflict when the `others` are left aside."""
    others = list(others)
    ignored = frozenset(row for other in others for row in other.aside)
    dropped = [other.requests[-1] for other in others if not other.rows]  # requests that contradict each other
    kept = [request for request in requests if request not in dropped]
    finder = _Finder(matrix, kept, waived, good, Budget(plans), ignored, rules)
    return finder.find([conflict.components()])


class Budget:
    """How many plans may be looked at."""

    def __init__(self, plans: int) -> None:
        self._left = plans

    def over(self) -> bool:
        """Take one; whether there was none left."""
        self._left -= 1
        return self._left < 0


@dataclass(frozen=True, slots=True)
class _Finder:
    matrix: FactTable
    requests: Sequence[Request]
    waived: Collection[str]
    good: Good | None
    clock: Budget
    ignored: frozenset[int]
    rules: Rules

    def find(self, conflicts: Sequence[Collection[str]]) -> list[Fix]:
        """`conflicts`: the components of each. A change mends only what it takes part in."""
        fixed = self.rules.fixed
        conflicts = [{*conflict, *self._leading(conflict)} for conflict in conflicts]
        names = sorted({name for conflict in conflicts for name in conflict} - fixed, key=self._cost)
        found: list[Fix] = []
        for name in sorted(names, key=lambda name: name not in self.rules.sets):  # few plans tell all of these
            if all(name in conflict for conflict in conflicts):
                found += self._alone(name)
                found += self._left_out(name)
        if all(fix.cost >= HARDWARE for fix in found):
            alone = fixed.union(self.rules.sets)
            asked = sorted({request.component for request in self.requests if request.id} - alone, key=self._cost)
            pairs = sorted(combinations(asked, 2), key=lambda pair: self._cost(pair[0])[0] + self._cost(pair[1])[0])
            for pair in pairs:
                if len(found) < PAIRS and all(set(pair) & set(conflict) for conflict in conflicts):
                    found += self._both(*pair)
        once = {fix.changes: fix for fix in reversed(found)}
        return sorted((fix for fix in found if once[fix.changes] is fix), key=lambda fix: fix.cost)

    def _leading(self, conflict: Collection[str]) -> list[str]:
        """The components whose change brings one of `conflict` along."""
        sets = self.rules.sets
        return [name for name in sets if any(other in conflict for one in sets[name] for other in one)]

    def _cost(self, name: str) -> tuple[int, str]:
        return self.matrix.components[self.matrix.number[name]].cost, name

    # --- one component

    def _alone(self, name: str) -> list[Fix]:
        """The nearest value on either side with which everything else can be met."""
        if name in self.rules.sets:
            return self._together(name)
        trial = _Trial(self, (name,))
        at = self.matrix.number[name]
        cost = self._cost(name)[0]
        if self.matrix.components[at].kind == "name":
            near = list(islice(trial.working(at, trial.near(name)), NAMES))
            if not near:
                return []
            names = [self.matrix.values_of(at, bit)[0] for bit, _ in near]
            return [Fix((Change(name, names[0], others=tuple(names[1:])),), cost, near[0][1])]
        found = [
            Fix((Change(name, self.matrix.values_of(at, bit)[0]),), cost, plan)
            for bit, plan in islice(trial.working(at, trial.builds(name)), 1)
        ]
        for side, reach in zip(trial.sides(name), (">=", "<="), strict=True):
            for bit, plan in islice(trial.working(at, side), 1):
                beyond = side[side.index(bit) + 1 :]
                all_the_way = bool(beyond) and trial.all_work(at, beyond)
                change = Change(name, self.matrix.values_of(at, bit)[0], reach if all_the_way else "")
                found.append(Fix((change,), cost, plan))
        return found

    def _together(self, name: str) -> list[Fix]:
        """Another value of a component that changes together with others."""
        number, sets = self.matrix.number, self.rules.sets[name]
        trial = _Trial(self, tuple(dict.fromkeys(other for one in sets for other in one)))
        for one in sets:
            plan = trial.plan({number[other]: mask for other, mask in one.items()})
            if plan is not None and (self.good is None or self.good(plan)):
                value = self.matrix.value(number[name], one[name])
                return [Fix((Change(name, value),), self._cost(name)[0], plan)]
        return []

    def _left_out(self, name: str) -> list[Fix]:
        cost = self._cost(name)[0]
        if cost > SPARE or name in self.rules.ties:
            return []
        at = self.matrix.number[name]
        plan = _Trial(self, (), left_out=name).plan({})
        if plan is None or plan[at] != ABSENT or not (self.good is None or self.good(plan)):
            return []
        return [Fix((Change(name, None),), cost + LEFT_OUT, plan)]

    # --- two components

    def _both(self, cheap: str, dear: str) -> list[Fix]:
        """The nearest value of the dearer component for which the cheaper one has any, and then the nearest of that."""
        trial = _Trial(self, (cheap, dear))
        first, second = self.matrix.number[cheap], self.matrix.number[dear]
        for bit in trial.possible({}, second, trial.near(dear)[:NEAR]):
            for other, plan in islice(trial.working(first, trial.near(cheap)[:NEAR], {second: bit}), 1):
                changes = [(dear, second, bit), (cheap, first, other)]
                told = tuple(Change(name, self.matrix.values_of(at, mask)[0]) for name, at, mask in changes)
                return [Fix(told, self._cost(cheap)[0] + self._cost(dear)[0], plan)]
        return []


class _Trial:
    """The request without what it says of some components, which are there all the same."""

    def __init__(self, finder: _Finder, free: Sequence[str], left_out: str = "") -> None:
        self._finder, self._matrix = finder, finder.matrix
        gone = {*free, left_out}.union(*(finder.rules.ties.get(name, ()) for name in (*free, left_out)))
        kept = [request for request in finder.requests if request.component not in gone]
        numbers = {self._matrix.number[name] for name in free}
        problem = Problem.of(self._matrix, kept, finder.waived, HARD, finder.ignored)
        self._search: Search = problem.search(numbers)
        self._asked = {name: self._mask(name) for name in free}
        self._alike = {at: interchangeable(self._matrix, at) for at in numbers}

    def plan(self, wanted: Mapping[int, int]) -> list[int] | None:
        """The plan in which these components have values within these masks; None when there is none, or no time."""
        if self._finder.clock.over():
            return None
        try:
            return self._search.first(tuple(wanted.items()), limit=STEPS)
        except Undecided:
            return None

    def possible(self, wanted: Mapping[int, int], at: int, bits: Sequence[int]) -> Iterator[int]:
        """Those of `bits` that component `at` can have beside `wanted`."""
        left = sum(bits)
        answers: dict[int, bool] = {}
        for bit in bits:
            alike = self._alike[at][bit]
            if alike not in answers:
                if len(answers) % LOOKS == 0 and self.plan({**wanted, at: left}) is None:
                    return
                answers[alike] = self.plan({**wanted, at: bit}) is not None
            if answers[alike]:
                yield bit
            left &= ~bit

    def working(
        self, at: int, bits: Sequence[int], wanted: Mapping[int, int] | None = None
    ) -> Iterator[tuple[int, list[int]]]:
        """Those of `bits` with which there is a good plan, and the plan."""
        disliked: set[int] = set()
        for bit in self.possible(wanted or {}, at, bits):
            alike = self._alike[at][bit]
            plan = self.plan({**(wanted or {}), at: bit}) if alike not in disliked else None
            if plan is not None and self._good(plan):
                yield bit, plan
            else:
                disliked.add(alike)
                if len(disliked) == PATIENCE:
                    return

    def all_work(self, at: int, bits: Sequence[int]) -> bool:
        """Whether there is a good plan with each of `bits`."""
        different = {self._alike[at][bit]: bit for bit in bits}.values()
        plans = [plan for bit in different if (plan := self.plan({at: bit})) is not None]
        over = self._finder.clock.over
        return len(plans) == len(different) and all(self._good(plan) and not over() for plan in plans)

    def _good(self, plan: list[int]) -> bool:
        return self._finder.good is None or self._finder.good(plan)

    def near(self, name: str) -> list[int]:
        """All values but those that are asked for, nearest first."""
        at = self._matrix.number[name]
        if self._matrix.components[at].kind == "name":
            return [2 << place for place in range(len(self._matrix.values[at])) if not 2 << place & self._asked[name]]
        newer, older = self.sides(name)
        mixed: list[int] = []
        for place in range(max(len(newer), len(older))):
            mixed += newer[place : place + 1] + older[place : place + 1]
        return mixed

    def builds(self, name: str) -> list[int]:
        """Other builds of the version that is asked for: those with a local label (``2.0.1+cu118``)."""
        at = self._matrix.number[name]
        builds, asked = labelled(self._matrix, at), self._matrix.values_of(at, self._asked[name])
        bits = [2 << place for place in range(len(self._matrix.values[at])) if builds & 2 << place]
        same = {value.partition("+")[0] for value in asked}
        return [bit for bit in bits if self._matrix.values_of(at, bit)[0].partition("+")[0] in same]

    def sides(self, name: str) -> tuple[list[int], list[int]]:
        """(newer values, older values) than those that are asked for, nearest first. Where a build with a label is
        asked for, other releases' builds with one count too."""
        at = self._matrix.number[name]
        builds = 0
        if self._asked[name] & labelled(self._matrix, at):
            builds = sum(2 << place for place, value in enumerate(self._matrix.values[at]) if reserve(value) == 1)
        releases = ascending(self._matrix, at, self._asked[name] | builds)
        wanted = [place for place, bit in enumerate(releases) if bit & self._asked[name]]
        if not wanted:  # what is asked for has no order, or there is no such version: from the newest down
            return [], releases[::-1]
        return releases[wanted[-1] + 1 :], releases[: wanted[0]][::-1]

    def _mask(self, name: str) -> int:
        mask = self._matrix.full[self._matrix.number[name]]
        for request in self._finder.requests:
            if request.component == name:
                mask &= request.mask
        return mask


def _short(value: str) -> str:
    """``2.1`` of ``2.1.0``: as a bound it is the same."""
    while value.endswith(".0") and value.count(".") > 1:
        value = value.removesuffix(".0")
    return value
