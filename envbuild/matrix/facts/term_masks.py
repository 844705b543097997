"""Constraints of one component as masks of its values, each term of them evaluated once."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.matrix.facts import version
from envbuild.matrix.facts.model import Component, Constraint, Term
from envbuild.matrix.facts.value_match import holds


class TermMasks:
    """The values of a component, with absence as bit 0, and the masks of the terms that were evaluated."""

    def __init__(self, component: Component, values: Sequence[str]) -> None:
        self._component = component
        self._values = (None, *values)
        self._known: dict[Term, tuple[int, int]] = {}
        exact = version.key if component.kind == "version" else str
        self._same: dict[object, int] = {}  # exact value → its bits
        for at, value in enumerate(values, 1):
            self._same[exact(value)] = self._same.get(exact(value), 0) | 1 << at
        self._exact = exact if component.kind != "sm" else None

    def evaluate(self, constraint: Constraint) -> tuple[int, int]:
        """Return (values that meet the constraint, those that cannot be ordered), as `evaluate_constraint` does."""
        sure = maybe = 0
        for terms in constraint.alternatives:
            all_sure = all_maybe = -1
            for term in terms:
                term_sure, term_maybe = self._term(term)
                all_sure &= term_sure
                all_maybe &= term_sure | term_maybe
            every = (1 << len(self._values)) - 1
            sure |= all_sure & every
            maybe |= all_maybe & every
        return sure, maybe & ~sure

    def _term(self, term: Term) -> tuple[int, int]:
        if term not in self._known:
            self._known[term] = self._evaluate_term(term)
        return self._known[term]

    def _evaluate_term(self, term: Term) -> tuple[int, int]:
        if term.op == "==" and self._exact:
            return self._same.get(self._exact(term.operand), 0), 0
        sure = maybe = 0
        for at, value in enumerate(self._values):
            answer = holds(self._component.kind, term, value)
            sure |= bool(answer) << at
            maybe |= (answer is None) << at
        return sure, maybe
