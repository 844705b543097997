"""Trial of a request without its requirements of some components: which of their values would work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from envbuild.matrix.answer.plan_filter import PlanFilter
from envbuild.matrix.facts.atoms import ABSENT, NO_GPU, pick_penalty
from envbuild.matrix.facts.constraint_masks import labelled_mask
from envbuild.matrix.facts.fact_table import HARD, FactTable
from envbuild.matrix.facts.value_order import ascending_bits, interchangeable_values
from envbuild.matrix.sat.solver import Search, UndecidedError
from envbuild.matrix.solve.encoding import Problem, Request, assumptions_of
from envbuild.matrix.solve.known_plan import EFFORT
from envbuild.matrix.solve.shared_search import effort_of, order_of, shared_search

STEPS = 100_000  # for one value
PATIENCE = 12  # values that are possible but not good before the search for better ones ends
LOOKS = 4  # values that are tried before the rest is tested as a whole


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of what may be proposed. `fixed`: components that do not change. `ties`: component → those whose requests
    are dropped when it changes, because one line of a spec states them all; it is not left out. `sets`: component →
    values of it and of further ones that change together, each as component → mask; nothing else is proposed for it.
    `leaving`: components that are left out, and not changed."""

    fixed: frozenset[str] = frozenset()
    ties: Mapping[str, frozenset[str]] = field(default_factory=dict)
    sets: Mapping[str, Sequence[Mapping[str, int]]] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()

    def fixing(self, names: Iterable[str]) -> Rules:
        """Return these rules with more components that do not change."""
        return replace(self, fixed=self.fixed.union(names))


FREE = Rules()


class Budget:
    """The number of plans that may still be tried."""

    def __init__(self, plans: int) -> None:
        self._left = plans

    def add(self, plans: int) -> None:
        """Let more plans be tried."""
        self._left = max(self._left, 0) + plans

    def over(self) -> bool:
        """Use one; return whether there was none left."""
        self._left -= 1
        return self._left < 0


@dataclass(frozen=True, slots=True)
class Task:
    """A request to fix. `good` decides whether a plan may be proposed, `budget` how many may be tried; the rows
    `ignored` are left out."""

    matrix: FactTable
    requests: Sequence[Request]
    waived: Collection[str]
    good: PlanFilter | None
    budget: Budget
    ignored: frozenset[int]
    rules: Rules


def _search(task: Task, given: Sequence[tuple[int, int]], free: Collection[int]) -> Search:
    """Return the search for plans with the hard facts, the same one for all trials that differ in requests alone."""
    matrix = task.matrix
    unbacked = frozenset(number for number in free if number in matrix.backing)

    def prepare(all_free: Collection[int]) -> Search:
        problem = Problem.of(matrix, (), task.waived, HARD, task.ignored, unbacked)
        return Search(problem.domains, problem.clauses, all_free, problem.index)

    key = "trial", frozenset(task.waived), task.ignored, unbacked
    return shared_search(matrix, key, given, prepare, free)


class Trial:
    """The request without its requirements of some components, which are present all the same."""

    def __init__(self, task: Task, free: Sequence[str], left_out: str = "") -> None:
        self._task, self._matrix = task, task.matrix
        gone = {*free, left_out}.union(*(task.rules.ties.get(name, ()) for name in (*free, left_out)))
        kept = [request for request in task.requests if request.component not in gone]
        numbers = {self._matrix.number[name] for name in free}
        self._given = assumptions_of(self._matrix, kept)
        self._fixed = {number: mask for number, mask in self._given if mask != ABSENT and not mask & mask - 1}
        self._search = _search(task, self._given, numbers)
        asked = numbers.union(number for number, _ in self._given)
        self._order = order_of(asked, self._search.implied_domains(self._given))
        self._asked = {name: self._mask(name) for name in free}
        self._alike = {at: interchangeable_values(self._matrix, at) for at in numbers}

    def plan(self, wanted: Mapping[int, int]) -> list[int] | None:
        """Return the plan in which these components have values within these masks; None when there is none, or no
        time."""
        if self._task.budget.over() or effort_of(self._matrix) > EFFORT:
            return None
        try:
            self._search.arrange(self._order)
            return self._search.first((*self._given, *wanted.items()), limit=STEPS)
        except UndecidedError:
            return None

    def possible(self, wanted: Mapping[int, int], at: int, bits: Sequence[int]) -> Iterator[int]:
        """Yield those of `bits` that component `at` can have beside `wanted`, but for those about which something is
        unknown in each plan."""
        left = sum(bits)
        answers: dict[int, bool] = {}
        good, fixed = self._task.good, {**self._fixed, **wanted}
        for bit in bits:
            if good is not None and good.bars({**fixed, at: bit}):
                left &= ~bit
                continue
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
        """Yield those of `bits` with which there is a good plan, and the plan."""
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
        """Return whether there is a good plan with each of `bits`."""
        good, plans = self._task.good, list[list[int]]()
        if good is not None and any(good.bars({**self._fixed, at: bit}) for bit in reversed(bits)):
            return False
        for bit in {self._alike[at][bit]: bit for bit in reversed(bits)}.values():  # the farthest fails first
            if (plan := self.plan({at: bit})) is None:
                return False
            plans.append(plan)
        over = self._task.budget.over
        return all(self._good(plan) and not over() for plan in plans)

    def _good(self, plan: list[int]) -> bool:
        return self._task.good is None or self._task.good(plan)

    def near(self, name: str) -> list[int]:
        """Return all values but the requested ones, nearest first."""
        at = self._matrix.number[name]
        if self._matrix.components[at].kind == "name":
            return self._other_names(at, self._asked[name])
        newer, older = self.sides(name)
        mixed: list[int] = []
        for place in range(max(len(newer), len(older))):
            mixed += newer[place : place + 1] + older[place : place + 1]
        return mixed

    def _other_names(self, at: int, asked: int) -> list[int]:
        """Return all names but those requested; of the same repository as an image first, tags of the same variant
        (``devel-ubuntu22.04``) before, and of these the nearest."""
        values = self._matrix.values[at]
        there = [place for place in range(len(values)) if 2 << place & asked]
        start = there[0] if there else 0
        repository, _, tag = values[start].rpartition(":")
        variant = tag.partition("-")[2]

        def distance(place: int) -> tuple[bool, bool, int]:
            other, _, tag = values[place].rpartition(":")
            same = bool(repository) and other == repository
            return not same, same and tag.partition("-")[2] != variant, abs(place - start) if same else place

        return [2 << place for place in sorted(range(len(values)), key=distance) if place not in there]

    def builds(self, name: str) -> list[int]:
        """Return other builds of the requested version: those with a local label (``2.0.1+cu118``). Those
        without code for GPUs are never proposed: they resolve every conflict about one, as without it."""
        at = self._matrix.number[name]
        builds, asked = labelled_mask(self._matrix, at), self._matrix.values_of(at, self._asked[name])
        bits = [2 << place for place in range(len(self._matrix.values[at])) if builds & 2 << place]
        same = {value.partition("+")[0] for value in asked}
        found = {bit: self._matrix.values_of(at, bit)[0] for bit in bits}
        return [bit for bit, value in found.items() if value.partition("+")[0] in same and not value.endswith(NO_GPU)]

    def sides(self, name: str) -> tuple[list[int], list[int]]:
        """Return (newer values, older values) than the requested ones, nearest first. If a build with a label is
        requested, other releases' builds with one count too."""
        at = self._matrix.number[name]
        builds = 0
        if self._asked[name] & labelled_mask(self._matrix, at):
            labelled = [place for place, value in enumerate(self._matrix.values[at]) if pick_penalty(value) == 1]
            builds = sum(2 << place for place in labelled if not self._matrix.values[at][place].endswith(NO_GPU))
        releases = ascending_bits(self._matrix, at, self._asked[name] | builds)
        wanted = [place for place, bit in enumerate(releases) if bit & self._asked[name]]
        if not wanted:  # the requested value has no order, or there is no such version: from the newest down
            return [], releases[::-1]
        return releases[wanted[-1] + 1 :], self._plain_first(at, releases[: wanted[0]][::-1])

    def _plain_first(self, at: int, bits: Sequence[int]) -> list[int]:
        """Return `bits` with the plain build of each release before those with a label."""
        releases: dict[str, list[int]] = {}
        for bit in bits:
            releases.setdefault(self._matrix.values_of(at, bit)[0].partition("+")[0], []).append(bit)
        labelled = labelled_mask(self._matrix, at)
        return [bit for group in releases.values() for bit in sorted(group, key=lambda bit: bool(bit & labelled))]

    def _mask(self, name: str) -> int:
        mask = self._matrix.full[self._matrix.number[name]]
        for request in self._task.requests:
            if request.component == name:
                mask &= request.mask
        return mask
