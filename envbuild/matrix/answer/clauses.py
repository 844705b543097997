"""The reasons of a conflict as clauses: what concerns several builds of one component is one clause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.encoding import Core
from envbuild.matrix.solve.phrasing import Reason, join_or, value_phrase

PREDICATE = re.compile(r"\b(?:contains|needs|works with) .+")
SHORT = 6  # builds that are listed


def because_clauses(matrix: FactTable, core: Core, reasons: Sequence[Reason], known: Mapping[str, str]) -> list[str]:
    """Return the `reasons` of a conflict, one of each of its groups, as clauses that are joined by "and". Reasons about
    different builds of one component are never all true at once: they are one clause, where the first of them is."""
    alternatives = _find_alternatives(matrix, core)
    parts = dict(zip([group[0] for group in reversed(core.groups)], reasons, strict=True))
    parts = {row: reason for row, reason in parts.items() if not reason.default}
    obstacles = {row: reason for row, reason in parts.items() if not (reason.example and reason.kind == "provides")}
    parts = obstacles or parts  # one of many builds, which nothing names, is not
    inside = {row: reason for row, reason in parts.items() if alternatives and row in alternatives.rows}
    if alternatives is None or len(merge_texts(list(inside.values()))) < 2:
        return merge_texts(list(parts.values()))
    clauses = [
        reason.cited if row not in inside else _alternatives_clause(matrix, core, alternatives, inside, known)
        for row, reason in parts.items()
        if row not in inside or row == next(iter(inside))
    ]
    return list(dict.fromkeys(clauses))


class Alternatives:
    """The `rows` of a conflict that are about some of the values of one component, and these values."""

    def __init__(self, component: int, rows: frozenset[int], mask: int) -> None:
        self.component, self.rows, self.mask = component, rows, mask


def _find_alternatives(matrix: FactTable, core: Core) -> Alternatives | None:
    """Return those of the component with the most rows about different values, and what follows from these alone."""
    conditions = {row: _masks(matrix, matrix.rows[row].when) for row in core.rows}
    asked = {matrix.number[request.component] for request in core.requests}
    best = 0
    found: Alternatives | None = None
    for at in sorted({at for masks in conditions.values() for at in masks}):
        allowed = _allowed(matrix, core, at)
        own = {row: masks[at] & allowed for row, masks in conditions.items() if masks.get(at, 0) & allowed}
        own = {row: mask for row, mask in own.items() if mask != allowed}
        disjoint = any(not one & other for one in own.values() for other in own.values())
        if disjoint and len(own) > best:
            best = len(own)
            found = Alternatives(at, _with_consequences(matrix, conditions, asked, at, own), _union(own.values()))
    return found


def _with_consequences(
    matrix: FactTable, conditions: Mapping[int, Mapping[int, int]], asked: set[int], at: int, own: Iterable[int]
) -> frozenset[int]:
    """Return the rows `own`, and those that depend on nothing but what these rows decide."""
    rows = set(own)
    outside = {other for row in conditions if row not in rows for other in _masks(matrix, matrix.rows[row].then)}
    decided = {other for row in rows for other in _masks(matrix, matrix.rows[row].then)} - asked - outside
    for row, masks in conditions.items():
        given = masks.keys() - {at}
        if given & decided and (at in masks or given <= decided):
            rows.add(row)
    return frozenset(rows)


def _masks(matrix: FactTable, atoms: Iterable[int]) -> dict[int, int]:
    return {matrix.atoms[atom].component: matrix.atoms[atom].sure for atom in atoms}


def _allowed(matrix: FactTable, core: Core, at: int) -> int:
    """Return the values of a component that the requests of a conflict and its rows about other components allow."""
    allowed = matrix.domains[at]
    for request in core.requests:
        if matrix.number[request.component] == at:
            allowed &= request.mask
    for row in _pinning_rows(matrix, core, at):
        allowed &= row_claim(matrix, row).allowed[at]
    return allowed


def _pinning_rows(matrix: FactTable, core: Core, at: int) -> list[int]:
    """Return the rows that state what a component is, and have no condition about it."""
    lines = {row: matrix.rows[row] for row in core.rows}
    return [
        row for row, line in lines.items() if at in _masks(matrix, line.then) and at not in _masks(matrix, line.when)
    ]


def _union(masks: Iterable[int]) -> int:
    whole = 0
    for mask in masks:
        whole |= mask
    return whole


def _alternatives_clause(
    matrix: FactTable, core: Core, alternatives: Alternatives, parts: Mapping[int, Reason], known: Mapping[str, str]
) -> str:
    """Return ``each build of torch 2.6.0 (2.6.0, +cpu) contains no code for sm_100 [ids]`` where one statement excludes
    each of them; else ``no build of torch 2.6.0 fits (… [id]; … [id])``."""
    at = alternatives.component
    name = matrix.components[at].name
    values = matrix.values_of(at, alternatives.mask)
    pins = [matrix.then(row)[name] for row in _pinning_rows(matrix, core, at)]
    noun = "build" if any("+" in value for value in values) else "version"
    what = value_phrase(matrix, name, pins[0] if pins else "*", known)
    excluding = {row: reason.text for row, reason in parts.items() if reason.kind != "provides"}
    predicates = {match[0] if (match := PREDICATE.search(text)) else "" for text in excluding.values()}
    if len(predicates) == 1 and "" not in predicates and _cover(matrix, alternatives, excluding):
        labels = ", ".join(f"+{value.partition('+')[2]}" if "+" in value else value for value in values)
        listed = f" ({labels})" if len(values) <= SHORT else ""
        return f"each {noun} of {what}{listed} {predicates.pop()} {_ids(parts.values())}"
    where = _requested_origin(matrix, core, alternatives, known)
    return f"no {noun} of {what}{where} fits ({'; '.join(merge_texts(list(parts.values())))})"


def _requested_origin(matrix: FactTable, core: Core, alternatives: Alternatives, known: Mapping[str, str]) -> str:
    """Return ``of channel index`` where a request for an origin excludes builds of another one."""
    provided = {name for row in alternatives.rows for name in matrix.then(row)}
    hidden = {component.name for component in matrix.components if component.hidden and component.kind == "name"}
    names = sorted({request.component for request in core.requests} & provided & hidden & known.keys())
    return "".join(f" of {name} {known[name].removeprefix('==')}" for name in names)


def _cover(matrix: FactTable, alternatives: Alternatives, excluding: Iterable[int]) -> bool:
    """Return whether one of the rows `excluding` applies to each of the values, with what other rows state of it."""
    lines = {row: matrix.rows[row] for row in alternatives.rows}
    decided = {other for line in lines.values() for other in _masks(matrix, line.then)}
    values = alternatives.mask
    while values:
        bit = values & -values
        values ^= bit
        given = {alternatives.component: bit}
        for line in lines.values():
            when = _masks(matrix, line.when)
            if when.keys() == {alternatives.component} and when[alternatives.component] & bit:
                given |= _masks(matrix, line.then)
        for row in excluding:
            when = _masks(matrix, lines[row].when)
            relevant = when.keys() & {alternatives.component, *decided}
            if all(other in given and not given[other] & ~when[other] for other in relevant):
                break
        else:
            return False
    return True


def merge_texts(reasons: Sequence[Reason]) -> list[str]:
    """Return the reasons as cited; those of one fact that differ in a word are one, and so are those of one text."""
    by_fact: dict[str, list[Reason]] = {}
    for reason in reasons:
        by_fact.setdefault(reason.fact, []).append(reason)
    by_text: dict[str, list[Reason]] = {}
    for same in by_fact.values():
        texts = list(dict.fromkeys(reason.text for reason in same))
        merged = _merge_words(texts)
        for text in [merged] if merged else texts:
            by_text.setdefault(text, []).extend(same)
    return [f"{text} {_ids(same)}" for text, same in by_text.items()]


def _merge_words(texts: Sequence[str]) -> str:
    """Return ``built for CUDA 12.6 or 12.8`` for two texts of which only one word differs; else nothing."""
    if len(texts) == 1:
        return texts[0]
    words = [text.split() for text in texts]
    head = next((at for at, same in enumerate(zip(*words, strict=False)) if len(set(same)) > 1), min(map(len, words)))
    if any(one[head + 1 :] != words[0][head + 1 :] or len(one) <= head for one in words):
        return ""
    return " ".join([*words[0][:head], join_or(one[head] for one in words), *words[0][head + 1 :]])


def _ids(reasons: Iterable[Reason]) -> str:
    return " ".join(dict.fromkeys(f"[{reason.fact}]" for reason in reasons))
