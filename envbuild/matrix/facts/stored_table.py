"""A fact table as plain values, with what its rows alone determine: so that a question starts with the clauses, their
index, and the rows by condition, and computes none of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from envbuild.matrix.facts.atoms import Atom
from envbuild.matrix.facts.clauses import program_of
from envbuild.matrix.facts.evaluate import find_guards, guarded_rows
from envbuild.matrix.facts.evidence import evident_pairs
from envbuild.matrix.facts.fact_table import HARD, Caches, CompiledRow, FactTable
from envbuild.matrix.facts.model import Component, Fact, Question, Source
from envbuild.matrix.facts.reachability import backing_clauses, bound_values, find_calls
from envbuild.matrix.facts.soft_program import soft_program_of
from envbuild.matrix.sat.clause_index import ClauseIndex
from envbuild.matrix.sat.program import Program, SoftProgram

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
NOTHING: frozenset[str] = frozenset()  # no fact is waived


def plain_table(matrix: FactTable) -> dict[str, Any]:
    """Return a table as tuples, lists, dicts and sets of texts and numbers."""
    return {
        "components": [{**_fields(component), "aliases": dict(component.aliases)} for component in matrix.components],
        "values": matrix.values,
        "questions": [_fields(question) for question in matrix.questions.values()],
        "facts": [{**_fields(fact), "source": _fields(fact.source)} for fact in matrix.facts],
        "atoms": [tuple(atom) for atom in matrix.atoms],
        "rows": [(row.fact, tuple(row.when), tuple(row.then), row.where, row.note) for row in matrix.rows],
        "narrowed": {key: [dict(box) for box in boxes] for key, boxes in matrix.narrowed.items()},
        "groups": tuple((rows, [dict(box) for box in boxes]) for rows, boxes in matrix.groups),
        "arising": dict(matrix.arising),
        "independent": _by_content(matrix.independent),
        "through": _by_content(matrix.through),
        "narrowed_pairs": dict(matrix.narrowed_pairs),
        "known_to": {name: dict(days) for name, days in matrix.known_to.items()},
        "digest": matrix.digest,
        "caches": plain_caches(matrix),
    }


def restore_table(plain: Mapping[str, Any]) -> FactTable:
    """Return the table of plain values. Raises TypeError, ValueError or LookupError for others."""
    questions = [Question(**given) for given in plain["questions"]]
    return FactTable(
        components=tuple(Component(**given) for given in plain["components"]),
        values=plain["values"],
        questions={question.id: question for question in questions},
        facts=tuple(Fact(**{**given, "source": Source(**given["source"])}) for given in plain["facts"]),
        atoms=tuple(map(Atom._make, plain["atoms"])),
        rows=tuple(map(CompiledRow._make, plain["rows"])),
        narrowed=plain["narrowed"],
        groups=plain["groups"],
        independent={pair: why for why, pairs in plain["independent"] for pair in pairs},
        through={pair: others for others, pairs in plain["through"] for pair in pairs},
        narrowed_pairs=plain["narrowed_pairs"],
        known_to=plain["known_to"],
        digest=plain["digest"],
        arising=plain["arising"],
        caches=restore_caches(plain["caches"]),
    )


def plain_caches(matrix: FactTable) -> dict[str, Any]:
    """Return what the rows of a table determine."""
    hard, soft = program_of(matrix), soft_program_of(matrix, NOTHING)
    return {
        "guards": find_guards(matrix),
        "guarded": guarded_rows(matrix),
        "calls": find_calls(matrix),
        "backing": backing_clauses(matrix),
        "bound": bound_values(matrix),
        "related": evident_pairs(matrix),
        "hard": [hard.clauses, hard.owners, _plain_index(hard.index)],
        "soft": [soft.rows, soft.clauses, _plain_index(soft.index)],
    }


def restore_caches(plain: Mapping[str, Any]) -> Caches:
    """Return the caches of a table that was stored."""
    clauses, owners, index = plain["hard"]
    rows, every, whole = plain["soft"]
    return Caches(
        guards=plain["guards"],
        guarded=plain["guarded"],
        calls=plain["calls"],
        backing=plain["backing"],
        bound=plain["bound"],
        related=plain["related"],
        programs={(NOTHING, HARD): Program(clauses, owners, ClauseIndex(*index))},
        soft_programs={NOTHING: SoftProgram(rows, every, ClauseIndex(*whole))},
    )


def _plain_index(index: ClauseIndex) -> tuple[int, list[int], dict[int, list[int]]]:
    return index.count, list(index.open), {var: list(numbers) for var, numbers in index.waiting.items()}


def _by_content(pairs: Mapping[tuple[int, int], T]) -> list[tuple[T, list[tuple[int, int]]]]:
    """Return each content with its pairs: many share one."""
    found: dict[T, list[tuple[int, int]]] = {}
    for pair, content in pairs.items():
        found.setdefault(content, []).append(pair)
    return list(found.items())


def _fields(item: DataclassInstance) -> dict[str, Any]:
    """Return the fields that differ from the defaults."""
    given: Iterable[tuple[str, Any, Any]] = ((one.name, getattr(item, one.name), one.default) for one in fields(item))
    return {name: value for name, value, default in given if value != default}
