"""What is wrong with facts that can be read: rivals that nobody decided between, rows that say nothing, sources that
name something else. Reading (`envbuild.matrix.load`) finds what is wrong with one line; this looks at all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import combinations

from envbuild.errors import Finding
from envbuild.fields import short
from envbuild.matrix import rivals, values, version
from envbuild.matrix.atoms import ABSENT
from envbuild.matrix.claims import claim_of
from envbuild.matrix.compiled import compile_facts
from envbuild.matrix.extension import extend
from envbuild.matrix.masks import FactTable
from envbuild.matrix.model import Component, Constraint, Fact, Facts, Row
from envbuild.matrix.rivals import Claim

MACHINE = "arch"  # the component whose values name machine architectures
Binding = Mapping[frozenset[int], Sequence[Claim]]
OTHER_PLATFORM = r"(?<![a-z])(win32|win_amd64|windows|macosx?|darwin)(?![a-z])"
MONTH = 30.44  # days


def lint(facts: Facts) -> list[Finding]:
    """Every mistake in `facts`, by place."""
    matrix = compile_facts(facts)
    sampled = _sampled(facts, matrix)
    found = [
        *_rivals(sampled),
        *_contradictions(sampled),
        *_disputes(sampled),
        *_constraints(facts, matrix, sampled),
        *_never(sampled),
        *_unused(facts),
    ]
    for fact in facts.facts.values():
        found += _source(fact)
        found += _places(facts, fact)
        found += _sentences(fact)
    return sorted(dict.fromkeys(found), key=lambda finding: [_number(part) for part in finding.where.split(":")])


def aged(facts: Facts, months: int, today: date) -> list[Finding]:
    """The facts that were last seen more than `months` before `today`: something to know, no mistake."""
    found = []
    for fact in facts.facts.values():
        age = (today - date.fromisoformat(fact.source.seen)).days / MONTH
        if age > months:
            found.append(Finding(f"{fact.id} was seen {age:.0f} months ago, on {fact.source.seen}", fact.where))
    return found


def _sampled(facts: Facts, matrix: FactTable) -> FactTable:
    """The matrix with every version that any constraint names, those just after, one before and one after all: so that
    ranges differ of which no version is known."""
    named: dict[str, set[str]] = {}
    for _, _, name, wanted in _all(facts):
        kind = facts.components[name].kind
        for term in (term for terms in wanted.alternatives for term in terms if term.operand and kind != "name"):
            sampled = named.setdefault(name, {"0", "99999"} if kind == "version" else set())
            sampled.add(term.operand.rstrip("af") if kind == "sm" else term.operand)
            if kind == "version" and term.op in (">", "<="):
                *first, last = version.parse(term.operand).numbers
                sampled.add(".".join(str(number) for number in (*first, last + 1)))
    return extend(matrix, {name: sorted(sampled) for name, sampled in named.items()})


def _all(facts: Facts) -> Iterator[tuple[Fact, Row, str, Constraint]]:
    """Every constraint: (fact, row, component, constraint)."""
    for fact in facts.facts.values():
        for row in fact.rows:
            for name, wanted in (*row.when.items(), *row.then.items()):
                yield fact, row, name, wanted


# --- rivals


def _claims(matrix: FactTable) -> list[Claim]:
    return [claim_of(matrix, row) for row in range(len(matrix.rows))]


def _binding(matrix: FactTable) -> Binding:
    """The rows that bind wherever they hold, by the components of their 'when'. Defaults are set aside by requests, and
    other rows where a better source answers."""
    found: dict[frozenset[int], list[Claim]] = {}
    for claim in _claims(matrix):
        yields = any((claim.row, number) in matrix.narrowed for number in claim.allowed)
        if claim.fact.strength == "hard" and not claim.fact.default and not yields:
            found.setdefault(frozenset(claim.when), []).append(claim)
    return found


def _against(matrix: FactTable, binding: Binding, *claims: Claim) -> Claim | None:
    """The row that leaves some component nothing where all `claims` hold, whatever these say themselves.

    Only what follows from one row after the other is looked at, which takes milliseconds; to search through all
    combinations for each row takes minutes."""
    box: dict[int, int] = {}
    for claim in claims:
        for number, mask in claim.when.items():
            box[number] = box.get(number, matrix.full[number]) & mask
    own = {claim.row for claim in claims}
    before: dict[int, int] = {}
    while box != before:
        before = dict(box)
        for names in [names for names in binding if names <= box.keys()]:
            for other in binding[names]:
                for number, mask in other.when.items():
                    if box[number] & ~mask:
                        break
                else:
                    for number, allowed in other.allowed.items() if other.row not in own else ():
                        box[number] = box.get(number, matrix.full[number]) & allowed
                        if not box[number]:
                            return other
    return None


def _rivals(matrix: FactTable) -> Iterator[Finding]:
    """Rows of different facts that answer one question differently, without anything that decides between them."""
    by_question: dict[str, list[Claim]] = {}
    for claim in _claims(matrix):
        if claim.fact.question and claim.allowed:
            by_question.setdefault(claim.fact.question, []).append(claim)
    binding, told = _binding(matrix), set()
    for claims in by_question.values():
        for one, other in combinations(claims, 2):
            pair = (one.fact.id, other.fact.id)
            if pair in told or not _undecided(one.fact, other.fact) or not rivals.overlap(one.when, other.when):
                continue
            for number in one.allowed.keys() & other.allowed.keys():
                if (one.allowed[number] ^ other.allowed[number]) & ~ABSENT and not _against(
                    matrix, binding, one, other
                ):
                    told.add(pair)
                    yield Finding(
                        f"{one.fact.id} and {other.fact.id} answer '{one.fact.question}' differently for"
                        f" {matrix.components[number].name} ({_texts(matrix, one)}; {_texts(matrix, other)}),"
                        f" both {one.fact.source.type}",
                        matrix.rows[one.row].where,
                        "narrow one, ask two questions, or call both disputed; the other is at "
                        + matrix.rows[other.row].where,
                    )


def _undecided(one: Fact, other: Fact) -> bool:
    """Whether both would bind and neither takes the place of the other."""
    if one.id == other.id or one.default or other.default or rivals.beats(one, other) or rivals.beats(other, one):
        return False
    return "hard" in (one.strength, other.strength) and {one.strength, other.strength} <= {"hard", "disputed"}


def _contradictions(matrix: FactTable) -> Iterator[Finding]:
    """Two rows of one fact that hold together and leave a component no value."""
    by_fact: dict[str, list[Claim]] = {}
    binding = _binding(matrix)
    for claim in _claims(matrix):
        if claim.fact.strength == "hard":
            by_fact.setdefault(claim.fact.id, []).append(claim)
    for claims in by_fact.values():
        for one, other in combinations(claims, 2):
            both = [
                matrix.components[number].name
                for number in one.allowed.keys() & other.allowed.keys()
                if not one.allowed[number] & other.allowed[number] & ~ABSENT
                and one.allowed[number] & ~ABSENT
                and other.allowed[number] & ~ABSENT
            ]
            if both and rivals.overlap(one.when, other.when) and not _against(matrix, binding, one, other):
                yield Finding(
                    f"{one.fact.id}: two rows hold together and leave {both[0]} nothing"
                    f" ({_texts(matrix, one)}; {_texts(matrix, other)})",
                    matrix.rows[other.row].where,
                    f"the first is at {matrix.rows[one.row].where}",
                )


def _disputes(matrix: FactTable) -> Iterator[Finding]:
    """A dispute has two sides."""
    sides = {row for rows, _ in matrix.groups for row in rows}
    for claim in _claims(matrix):
        if claim.fact.strength == "disputed" and claim.row not in sides:
            yield Finding(
                f"{claim.fact.id} is disputed, but no other disputed fact has a row with this 'when' and question",
                matrix.rows[claim.row].where,
                "give the other side's fact the same question and the same 'when'",
            )


def _texts(matrix: FactTable, claim: Claim) -> str:
    when = ", ".join(f"{name} {text}" for name, text in matrix.when(claim.row).items()) or "always"
    then = ", ".join(f"{name} {text}" for name, text in matrix.then(claim.row).items())
    return f"{when}: {claim.fact.kind} {then}"


# --- rows that say nothing


def _constraints(facts: Facts, matrix: FactTable, sampled: FactTable) -> Iterator[Finding]:
    """Constraints that no value meets, and versions that never were."""
    met: dict[tuple[str, Constraint], tuple[bool, bool]] = {}
    for fact, row, name, wanted in _all(facts):
        component = facts.components[name]
        text = f"{fact.id}: {name} '{short(wanted.text)}'"
        if (name, wanted) not in met:
            met[name, wanted] = _known(sampled, name, wanted), _known(matrix, name, wanted)
        possible, known = met[name, wanted]
        if not possible:
            yield Finding(f"{text} can be met by nothing", row.where)
        elif component.values and not known:
            newest = component.values[0]
            yield Finding(f"{text} is met by no value that is known", row.where, f"the newest known is {newest}")
        elif component.complete and component.kind == "version":
            for operand in _plain(wanted):
                near = values.between(component, operand)
                if near and not any(
                    values.matches(component, values.constraint(component, operand), value)
                    for value in component.values
                ):
                    yield Finding(
                        f"{fact.id}: there never was a {name} {operand}",
                        row.where,
                        f"it lies between {near[0]} and {near[1]}",
                    )


def _known(matrix: FactTable, name: str, wanted: Constraint) -> bool:
    component = matrix.components[matrix.number[name]]
    known = (None, *matrix.values[matrix.number[name]])
    return any(values.matches(component, wanted, value) is not False for value in known)


def _plain(wanted: Constraint) -> Iterator[str]:
    """The releases that a constraint names. Builds with a label are listed nowhere in full."""
    for terms in wanted.alternatives:
        for term in terms:
            if term.op in ("==", "in") and "+" not in term.operand:
                yield term.operand


def _never(matrix: FactTable) -> Iterator[Finding]:
    """Rows that hold in no combination, because other rows rule out their 'when'."""
    binding = _binding(matrix)
    for claim in _claims(matrix):
        if all(claim.when.values()) and (against := _against(matrix, binding, claim)):
            text = ", ".join(f"{name} {text}" for name, text in matrix.when(claim.row).items())
            yield Finding(
                f"{claim.fact.id}: {against.fact.id} rules out {text}",
                matrix.rows[claim.row].where,
                f"remove this row, or correct the one at {matrix.rows[against.row].where}",
            )


def _unused(facts: Facts) -> Iterator[Finding]:
    """Components of which nothing is said and questions that nothing answers."""
    used = {name for _, _, name, _ in _all(facts)}
    for component in facts.components.values():
        if component.name not in used:
            yield Finding(f"no fact is about the component '{component.name}'", hint="remove it, or say what is known")
    for question in facts.questions.values():
        rows = [row for fact in facts.facts.values() if fact.question == question.id for row in fact.rows]
        if not any({*row.when, *row.then} >= set(question.of) for row in rows):
            what = f"no row with all of {', '.join(question.of)}" if rows else "no fact"
            yield Finding(f"nothing answers the question '{question.id}': {what}")


# --- sources and sentences


def _source(fact: Fact) -> Iterator[Finding]:
    """A source that a person can find again: the document or the file, and of which version."""
    source = fact.source
    if len(re.findall(r"[A-Za-z]{2,}|[0-9]+", source.where)) < 2:
        yield Finding(
            f"{fact.id}: the source '{short(source.where)}' says too little", fact.where, "name document and version"
        )
    elif source.type in ("upstream-code", "issue") and not re.search("[0-9]", source.where):
        what = "the number of the thread" if source.type == "issue" else "a version or commit"
        yield Finding(f"{fact.id}: the source '{short(source.where)}' lacks {what}", fact.where)
    if "://" in source.where:
        yield Finding(
            f"{fact.id}: the source is an address", fact.where, "name the document, or the repository and path"
        )
    if source.type == "measured" and not source.how:
        yield Finding(f"{fact.id}: measured, but not how", fact.where, "say under how: what was run or opened")


def _places(facts: Facts, fact: Fact) -> Iterator[Finding]:
    """File names and sources that name another architecture or platform than the row is about."""
    for row in fact.rows:
        for text in (fact.source.where, *_file_names(fact, row)):
            found = re.search(OTHER_PLATFORM, text.lower())
            if found and "linux" not in text.lower():
                yield Finding(f"{fact.id}: '{short(text)}' is about {found.group()}", fact.where)
            named = _machines(facts.components.get(MACHINE), text)
            own = _own_machines(facts, row)
            if named and own and not named & own:
                yield Finding(
                    f"{fact.id}: a row for {' and '.join(sorted(own))} rests on '{short(text)}',"
                    f" which is {' and '.join(sorted(named))}",
                    row.where,
                )


def _file_names(fact: Fact, row: Row) -> Iterator[str]:
    for text in (fact.source.how, fact.because, fact.condition, fact.hint, row.note):
        for word in text.split():
            if re.search(r"/|\.[a-z]{2}", word):
                yield word


def _machines(component: Component | None, text: str) -> set[str]:
    """The architectures that `text` names, in any spelling that the component has."""
    if component is None:
        return set()
    spellings: Mapping[str, str] = {values.fold(value): value for value in component.values} | dict(component.aliases)
    folded = values.fold(text)
    return {value for spelling, value in spellings.items() if spelling in folded}


def _own_machines(facts: Facts, row: Row) -> set[str]:
    """The architectures that a row is for; none when it is for all of them."""
    wanted = row.when.get(MACHINE) or row.then.get(MACHINE)
    component = facts.components.get(MACHINE)
    if wanted is None or component is None:
        return set()
    own = {value for value in component.values if values.matches(component, wanted, value)}
    return own if len(own) < len(component.values) else set()


def _sentences(fact: Fact) -> Iterator[Finding]:
    """Sentences are put together ("Because … [id] and … [id]."), so that they have no full stop of their own."""
    for name, text in (("because", fact.because), ("condition", fact.condition)):
        if text.endswith("."):
            yield Finding(f"{fact.id}: '{name}' ends with a full stop", fact.where, "leave it out")


def _number(part: str) -> tuple[int, str]:
    return (int(part), "") if part.isdigit() else (0, part)
