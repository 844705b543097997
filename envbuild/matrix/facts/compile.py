"""The compilation of facts to a table: the known values, the order in which they are picked, and each constraint
evaluated once for each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from envbuild.core.console import Reporter, terminal_reporter
from envbuild.matrix.facts import cache as fact_cache
from envbuild.matrix.facts.atoms import PRESENT_KINDS, Atom, format_terms, operands, pick_penalty
from envbuild.matrix.facts.clauses import update_precedence
from envbuild.matrix.facts.fact_table import CompiledRow, FactTable
from envbuild.matrix.facts.model import Component, Constraint, Facts, Row

BOUNDS = ("==", ">=", "<=")

_last: dict[Path, FactTable] = {}  # of this process: the cache's entry → the matrix


def load_fact_table(
    folders: Sequence[Path], cache: Path | None = None, reporter: Callable[[], Reporter] = terminal_reporter
) -> FactTable:
    """Return the table of the fact files in `folders`, from `cache` (None: the user's cache folder) if it is cached.
    Raise SpecError for wrong fact files; a cache that cannot be used is ignored.

    reporter: called when the files have to be read and compiled, which takes seconds.
    """
    marks = fact_cache.mark_facts(folders)
    key = fact_cache.cache_key(folders)
    entry = fact_cache.entry_path(cache, key) if key else None
    if entry and entry in _last and fact_cache.mark_used(entry):  # several images of one run use the same facts
        return _last[entry]
    matrix = fact_cache.read_entry(entry) if entry else None
    if matrix is None:
        matrix = _read_and_compile(folders, reporter())
        if fact_cache.mark_facts(folders) != marks:  # it may be of other bytes than its key
            return matrix
        if entry:
            fact_cache.write_entry(entry, matrix)
    if entry and cache is None:
        _last.clear()
        _last[entry] = matrix
    return matrix


def _read_and_compile(folders: Sequence[Path], reporter: Reporter) -> FactTable:
    from envbuild.matrix.facts.load import load_facts  # reads YAML, which a cached matrix does without

    reporter.start("facts", "reading the facts of the version matrix")
    try:
        return compile_facts(load_facts(folders))
    finally:
        reporter.finish("facts")


def compile_facts(facts: Facts) -> FactTable:
    """Return the table of `facts`."""
    from envbuild.matrix.facts.term_masks import TermMasks  # which a cached matrix does without

    components = tuple(sorted(facts.components.values(), key=lambda component: (component.rank, component.name)))
    number = {component.name: at for at, component in enumerate(components)}
    known = _known_values(facts)
    values = tuple(pick_order(component, known[component.name]) for component in components)
    masks = [TermMasks(component, own) for component, own in zip(components, values, strict=True)]
    atoms: list[Atom] = []
    places: dict[tuple[int, Constraint], int] = {}
    rows: list[CompiledRow] = []

    def atom(name: str, constraint: Constraint) -> int:
        at = places.setdefault((number[name], constraint), len(atoms))
        if at == len(atoms):
            component = number[name]
            sure, maybe = masks[component].evaluate(constraint)
            atoms.append(Atom(component, constraint.text, format_terms(constraint), sure, maybe))
        return at

    ordered = sorted(facts.facts.values(), key=lambda fact: fact.id)
    for at, fact in enumerate(ordered):
        for row in sorted(fact.rows, key=row_sort_key, reverse=True):
            when, then = (tuple(atom(*item) for item in part.items()) for part in (row.when, row.then))
            rows.append(CompiledRow(at, when, then, row.where, row.note))
    bare = tuple(replace(fact, rows=()) for fact in ordered)
    questions = {name: replace(question, when={}) for name, question in facts.questions.items()}
    arising = {
        name: tuple(atom(*item) for item in question.when.items())
        for name, question in facts.questions.items()
        if question.when
    }
    made = FactTable(
        components,
        values,
        questions,
        bare,
        tuple(atoms),
        tuple(rows),
        {},
        (),
        facts.digest,
        arising=arising,
        independent={ordered_pair(number[one], number[two]): why for (one, two), why in facts.independent.items()},
        through={
            ordered_pair(number[one], number[two]): tuple(number[via] for via in others)
            for (one, two), others in facts.through.items()
        },
        narrowed_pairs={
            ordered_pair(number[one], number[two]): (
                number[name],
                masks[number[name]].evaluate(wanted)[0],
                tuple(number[via] for via in others),
            )
            for (one, two), (name, wanted, others) in facts.narrowed_pairs.items()
        },
        known_to=facts.known_to,
    )
    return update_precedence(made)


def ordered_pair(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)


def row_sort_key(row: Row) -> list[list[tuple[int, str]]]:
    """Return a key that sorts rows by their text, numbers by their size: the same rows in another order are the same
    table."""
    texts = [f"{name} {constraint.text}" for part in (row.when, row.then) for name, constraint in sorted(part.items())]
    return [[(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)] for text in texts]


def _known_values(facts: Facts) -> dict[str, list[str]]:
    """Return component → every value that is listed, that a row names with ``==`` (of an exact component also as a
    bound), or that a row provides or requires when no known value fits."""
    from envbuild.matrix.facts.value_match import matches

    known = {name: dict.fromkeys(component.values) for name, component in facts.components.items()}
    provided: dict[tuple[str, Constraint], None] = {}
    for fact in facts.facts.values():
        for row in fact.rows:
            for name, constraint in (*row.when.items(), *row.then.items()):
                component = facts.components[name]
                if component.kind != "name":
                    operators = BOUNDS if component.exact else ("==",)
                    known[name] |= dict.fromkeys(operands(component, constraint, operators))
                    if fact.kind in PRESENT_KINDS and name in row.then:
                        provided[name, constraint] = None
    for name, constraint in provided:
        component = facts.components[name]
        if all(matches(component, constraint, value) is False for value in known[name]):
            known[name] |= dict.fromkeys(operands(component, constraint, ("in",)))
    return {name: list(values) for name, values in known.items()}


def pick_order(component: Component, values: Iterable[str]) -> tuple[str, ...]:
    """Return `values` without duplicates in the order in which they are picked: versions newest first, those with a
    penalty last. Names remain in their order."""
    if component.kind == "name":
        return tuple(dict.fromkeys(values))
    if component.kind == "sm":
        return tuple(sorted(set(values), key=lambda value: [int(part) for part in value.split(".")], reverse=True))
    from envbuild.matrix.facts import version

    found = {version.key(value): value for value in reversed(list(values))}  # of two spellings the first
    ordered = [found[key] for key in sorted(found, reverse=True)]
    return tuple(sorted(ordered, key=pick_penalty))
