"""Errors in facts that are well-formed: undecided conflicts, rows without effect, sources that name something else.
Reading (`envbuild.matrix.facts.load`) finds the errors of one line; this module checks all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from envbuild.core.errors import Finding
from envbuild.core.yaml_reader import short
from envbuild.matrix.facts import values, version
from envbuild.matrix.facts.compile import compile_facts
from envbuild.matrix.facts.extension import extend_table
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.lint_rows import (
    find_contradictions,
    find_disputes,
    find_rows_ruled_out,
    find_unresolved_conflicts,
)
from envbuild.matrix.facts.lint_sources import check_places, check_sentences, check_source
from envbuild.matrix.facts.model import Constraint, Fact, Facts, Row
from envbuild.matrix.facts.value_match import matches

MONTH = 30.44  # days


def lint_facts(facts: Facts) -> list[Finding]:
    """Return every mistake in `facts`, sorted by position."""
    matrix = compile_facts(facts)
    sampled = _sample_versions(facts, matrix)
    found = [
        *find_unresolved_conflicts(sampled),
        *find_contradictions(sampled),
        *find_disputes(sampled),
        *_check_constraints(facts, matrix, sampled),
        *find_rows_ruled_out(sampled),
        *_find_unused(facts),
    ]
    for fact in facts.facts.values():
        found += check_source(fact)
        found += check_places(facts, fact)
        found += check_sentences(fact)
    return sorted(dict.fromkeys(found), key=lambda finding: [_sort_part(part) for part in finding.where.split(":")])


def find_old_facts(facts: Facts, months: int, today: date) -> list[Finding]:
    """Return the facts that were last seen more than `months` before `today`: a warning, not a mistake."""
    found = []
    for fact in facts.facts.values():
        age = (today - date.fromisoformat(fact.source.seen)).days / MONTH
        if age > months:
            found.append(Finding(f"{fact.id} was seen {age:.0f} months ago, on {fact.source.seen}", fact.where))
    return found


def _sample_versions(facts: Facts, matrix: FactTable) -> FactTable:
    """Return the table with every version that any constraint names, those just after, one before and one after all: so
    that ranges differ of which no version is known."""
    named: dict[str, set[str]] = {}
    for _, _, name, wanted in _all_constraints(facts):
        kind = facts.components[name].kind
        for term in (term for terms in wanted.alternatives for term in terms if term.operand and kind != "name"):
            sampled = named.setdefault(name, {"0", "99999"} if kind == "version" else set())
            sampled.add(term.operand.rstrip("af") if kind == "sm" else term.operand)
            if kind == "version" and term.op in (">", "<="):
                *first, last = version.parse(term.operand).numbers
                sampled.add(".".join(str(number) for number in (*first, last + 1)))
    return extend_table(matrix, {name: sorted(sampled) for name, sampled in named.items()})


def _all_constraints(facts: Facts) -> Iterator[tuple[Fact, Row, str, Constraint]]:
    """Yield every constraint: (fact, row, component, constraint)."""
    for fact in facts.facts.values():
        for row in fact.rows:
            for name, wanted in (*row.when.items(), *row.then.items()):
                yield fact, row, name, wanted


# --- rows without effect


def _check_constraints(facts: Facts, matrix: FactTable, sampled: FactTable) -> Iterator[Finding]:
    """Report constraints that no value meets, and versions that do not exist."""
    results: dict[tuple[str, Constraint], tuple[bool, bool]] = {}
    for fact, row, name, wanted in _all_constraints(facts):
        component = facts.components[name]
        if (name, wanted) not in results:
            known = _is_known(matrix, name, wanted)
            results[name, wanted] = known or _is_known(sampled, name, wanted), known
        possible, known = results[name, wanted]
        if not possible:
            yield Finding(f"{fact.id}: {name} '{short(wanted.text)}' is met by no value at all", row.where)
        elif component.values and not known:
            text = f"{fact.id}: {name} '{short(wanted.text)}' is met by no value that is known"
            yield Finding(text, row.where, f"the newest known is {component.values[0]}")
        elif component.complete and component.kind == "version":
            for operand in _named_releases(wanted):
                near = values.neighbours(component, operand)
                if near and not any(
                    matches(component, values.parse_constraint(component, operand), value) for value in component.values
                ):
                    yield Finding(
                        f"{fact.id}: {name} {operand} does not exist",
                        row.where,
                        f"nearest: {near[0]} and {near[1]}",
                    )


def _is_known(matrix: FactTable, name: str, wanted: Constraint) -> bool:
    component = matrix.components[matrix.number[name]]
    known = (None, *matrix.values[matrix.number[name]])
    return any(matches(component, wanted, value) is not False for value in known)


def _named_releases(wanted: Constraint) -> Iterator[str]:
    """Yield the releases that a constraint names. No list of builds with a label is complete."""
    for terms in wanted.alternatives:
        for term in terms:
            if term.op in ("==", "in") and "+" not in term.operand:
                yield term.operand


def _find_unused(facts: Facts) -> Iterator[Finding]:
    """Report components that no fact names and questions that no fact answers."""
    used = {name for _, _, name, _ in _all_constraints(facts)}
    for component in facts.components.values():
        if component.name not in used:
            yield Finding(
                f"no fact is about the component '{component.name}'", hint="remove it, or add a fact about it"
            )
    for question in facts.questions.values():
        rows = [row for fact in facts.facts.values() if fact.question == question.id for row in fact.rows]
        if not any({*row.when, *row.then} >= set(question.of) for row in rows):
            what = f"no row with all of {', '.join(question.of)}" if rows else "no fact"
            yield Finding(f"nothing answers the question '{question.id}': {what}")


# --- order


def _sort_part(part: str) -> tuple[int, str]:
    return (int(part), "") if part.isdigit() else (0, part)
