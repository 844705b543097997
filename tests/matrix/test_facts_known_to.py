"""Bounded evidence in the shipped facts: an open row of today does not answer for a version that is added later."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.evidence import evidence_components, is_open
from envbuild.matrix.facts.extension import extend_table
from tests.support.shipped_facts import shipped_matrix

pytestmark = [pytest.mark.unit, pytest.mark.slow_unit]

LATER = {"sm": "19.0"}  # of the others 99999.9


def test_no_open_row_answers_for_a_version_that_is_added_later() -> None:
    """The source of a row knew versions up to `known-to`, of the fact or of the day. Of a newer driver NVIDIA states
    that it runs what older ones run."""
    ordered = [one for one in shipped_matrix().components if one.kind != "name" and not one.newer]
    found = {(one.name, fact) for one in ordered for fact in facts_about_later(one.name)}
    assert len(ordered) > 30
    assert sorted(found) == []


def facts_about_later(name: str) -> Iterator[str]:
    """Yield the facts with an open row that is evidence of a version newer than all that are known."""
    later = LATER.get(name, "99999.9")
    matrix = extend_table(shipped_matrix(), {name: [later]})
    number = matrix.number[name]
    assignment = [mask & ~ABSENT for mask in matrix.full]
    assignment[number] = matrix.bit(name, later)
    for row, line in enumerate(matrix.rows):
        forbids = matrix.fact(row).kind == "forbids"  # it excludes what it names
        atoms = [matrix.atoms[at] for at in (*line.when, *(() if forbids else line.then))]
        open_ended = any(atom.component == number and is_open(atom) for atom in atoms)
        if open_ended and number in evidence_components(matrix, row, assignment):
            yield matrix.fact(row).id
