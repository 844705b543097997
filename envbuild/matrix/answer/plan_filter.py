"""Filters of plans: which one may be proposed as a change, and which changes can have none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Protocol

from envbuild.core.distributions import DISTRIBUTIONS
from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.sat.solver import UndecidedError
from envbuild.matrix.solve.encoding import Request, pick_newest
from envbuild.matrix.solve.known_plan import EFFORT, STEPS, prefer_known_plan, unrequested_components
from envbuild.matrix.solve.lasting_gaps import Consequences, has_fixed_gap, unrelatable_pairs
from envbuild.matrix.solve.query import Query
from envbuild.matrix.solve.request import Ask
from envbuild.matrix.solve.shared_search import effort_of
from envbuild.matrix.solve.unknowns import has_unknowns

FEW = 5  # plans that are tried for each change that is to be proposed
OLDER = 12  # changes of which older choices are tried


class PlanFilter(Protocol):
    """A filter of plans that may be proposed."""

    def __call__(self, assignment: list[int]) -> bool:
        """Return whether a plan may be proposed."""

    def bars(self, values: Mapping[int, int]) -> bool:
        """Return whether no plan with these values of some components may be proposed. `values`: number of a component
        → its mask of one value."""


class KnownPlans:
    """Plans of which nothing is unknown between the components of some requirements."""

    def __init__(self, case: Query, asks: Sequence[Ask]) -> None:
        """Prepare for plans of `case`; `asks`: the requirements."""
        self._case, self._asks = case, asks

    def __call__(self, assignment: list[int]) -> bool:
        """Return whether nothing is unknown."""
        return not has_unknowns(self._case.matrix, assignment, self._asks, self._case.waived)

    def bars(self, values: Mapping[int, int]) -> bool:
        """Return False: each plan is tried."""
        return False


class ProposablePlans:
    """Plans that add no component of their own; facts cover all of them, or of an older choice of what the request
    leaves open; and if their base is another one, images can be built on that, as far as facts know."""

    def __init__(self, case: Query) -> None:
        """Prepare for plans of changes of `case`."""
        self._case = case
        matrix = case.matrix
        self._asked = {request.component for request in case.wanted}
        self._whole = {matrix.number[one.component]: one.mask for one in case.wanted if one.id}
        self._hopeless = unrelatable_pairs(matrix, map(matrix.number.__getitem__, self._asked), case.waived)
        self._base = matrix.number.get("base", -1)
        bases = matrix.values_of(self._base, self._whole[self._base]) if self._base in self._whole else []
        self._repositories = {repository for base in bases if (repository := base.rpartition(":")[0])}
        self._consequences = Consequences(matrix, case.waived)
        self._left = OLDER
        self._known = cache(self._find_known)

    def __call__(self, assignment: list[int]) -> bool:
        """Return whether a plan may be proposed."""
        case, matrix = self._case, self._case.matrix
        pinned = {number: _pinned_mask(mask, assignment[number]) for number, mask in self._whole.items()}
        if self.bars({number: mask for number, mask in pinned.items() if assignment[number] == mask}):
            return False
        if any(assignment[one] != ABSENT and assignment[other] != ABSENT for one, other in self._hopeless):
            return False
        if unrequested_components(matrix, assignment, self._asked, case.waived):
            return False
        another = self._base in self._whole and not assignment[self._base] & self._whole[self._base]
        if another and not is_possible_base(matrix.named(assignment), self._repositories):
            return False
        if not has_unknowns(matrix, assignment, case.asks, case.waived):
            return True
        return self._known(tuple(sorted(pinned.items())))

    def bars(self, values: Mapping[int, int]) -> bool:
        """Return whether no plan with these values of some components may be proposed, because something about these
        alone is unknown. `values`: number of a component → its mask of one value."""
        matrix, waived = self._case.matrix, self._case.waived
        assignment = [ABSENT] * len(matrix.components)
        for number, mask in values.items():
            assignment[number] = mask
        fixed = self._consequences.close(assignment, values)
        return has_fixed_gap(matrix, assignment, fixed, self._whole, waived)

    def _find_known(self, pinned: tuple[tuple[int, int], ...]) -> bool:
        """Return whether facts cover an older choice of what the request leaves open."""
        case, matrix = self._case, self._case.matrix
        self._left -= 1
        if self._left < 0 or effort_of(matrix) > EFFORT:
            return False
        named = [Request("", matrix.components[number].name, mask) for number, mask in pinned]
        wanted = [*named, *(request for request in case.wanted if not request.id)]
        try:
            plan = pick_newest(matrix, wanted, case.waived, STEPS)
            if plan is None:
                return False
            plan = prefer_known_plan(matrix, wanted, case.asks, case.waived, plan, FEW)
        except UndecidedError:
            return False
        return not has_unknowns(matrix, plan.assignment, case.asks, case.waived)


def _pinned_mask(wanted: int, value: int) -> int:
    """Return what a plan in which a component has this `value` keeps open of what is `wanted`."""
    return wanted if value & wanted and wanted & (wanted - 1) else value


def is_possible_base(chosen: Mapping[str, str], repositories: Collection[str]) -> bool:
    """Return whether the base of a plan may be proposed: images can be built on it, or it is of one of `repositories`
    and no fact names its distribution."""
    return is_buildable_base(chosen) or ("os" not in chosen and chosen["base"].rpartition(":")[0] in repositories)


def is_buildable_base(chosen: Mapping[str, str]) -> bool:
    """Return whether the base of a plan is a distribution that images are built on, with its own Python, or made of
    one."""
    known = DISTRIBUTIONS.get(chosen["base"])
    if known:
        return chosen.get("python", known.python) == known.python
    return chosen.get("os", "") in {item.name.replace(":", "") for item in DISTRIBUTIONS.values()}
