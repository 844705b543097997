"""Requests: what is asked of the matrix, and the words of a command line that ask it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from envbuild.core.errors import Finding, SpecError
from envbuild.core.yaml_reader import short
from envbuild.matrix.facts import values
from envbuild.matrix.facts.constraint_masks import have_common_value
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.model import Component, Constraint, Term
from envbuild.matrix.facts.value_match import matches

LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing that a request says: `component` is to be as `constraint` has it. `text` is how people read it
    (``torch==2.0.1``), `where` the place in a file, `by` who says so when it is not the person ("target h100-ib")."""

    component: str
    constraint: Constraint
    text: str
    where: str = ""
    by: str = ""


def ask_place(names: Iterable[str], asks: Iterable[Ask]) -> str:
    """The place in a spec where the first of the components `names` that has one is asked for; "" when none has."""
    places = {ask.component: ask.where for ask in asks if ask.where}
    return next((places[name] for name in names if name in places), "")


def parse_request(words: Sequence[str], matrix: FactTable) -> tuple[Ask, ...]:
    """The request that ``torch=2.0.1 gpu=H100 apex`` makes. Raises SpecError with every mistake."""
    asks: list[Ask] = []
    findings: list[Finding] = []
    known = {component.name: component for component in matrix.components}
    for word in words:
        try:
            component, constraint = values.parse_request(word, known)
            asks.append(_ask(matrix, component, constraint, plain=word))
        except SpecError as error:
            findings.extend(error.findings)
    findings += _contradictions(asks, matrix)
    if findings:
        raise SpecError.of(findings)
    return tuple(asks)


def override_asks(asks: Iterable[Ask], exact: Iterable[Ask]) -> tuple[Ask, ...]:
    """`asks` with the `exact` ones in place of those of the same components."""
    known = {ask.component: ask for ask in exact}
    kept = [replace(known[ask.component], where=ask.where) if ask.component in known else ask for ask in asks]
    return tuple(
        dict.fromkeys([*kept, *(ask for ask in known.values() if ask.component not in {k.component for k in kept})])
    )


def is_known_value(matrix: FactTable, name: str, value: str) -> bool:
    """Whether the facts have heard of this value of a component."""
    try:
        parse_ask(matrix, name, value)
    except SpecError:
        return False
    return True


def parse_ask(matrix: FactTable, name: str, text: str, *, where: str = "", by: str = "") -> Ask:
    """Return the ask that component `name` be as `text` has it: a version, or a comparison. Raises SpecError."""
    known = {component.name: component for component in matrix.components}
    component, constraint = values.parse_request(_word(name, text), known)
    return _ask(matrix, component, constraint, where=where, by=by)


def _word(name: str, text: str) -> str:
    if text == "*":
        return name
    return f"{name}{text}" if text[:1] in "<>=!~" else f"{name}={text}"


def _ask(
    matrix: FactTable, component: Component, constraint: Constraint, *, plain: str = "", where: str = "", by: str = ""
) -> Ask:
    if by != LOCK:  # what was locked did exist, whatever the facts have heard of
        _check_existed(component, constraint)
    return Ask(component.name, constraint, ask_text(component, constraint, plain), where, by)


def _single_term(constraint: Constraint) -> Term | None:
    """The one term of a constraint that has one."""
    one = constraint.alternatives[0] if len(constraint.alternatives) == 1 else ()
    return one[0] if len(one) == 1 else None


def ask_text(component: Component, constraint: Constraint, plain: str = "") -> str:
    """How people read an ask: ``H100``, ``torch==2.0.1``, ``torch>=2.1``."""
    term = _single_term(constraint)
    if term and term.op in ("==", "is", "in") and term.operand:
        shown = f"sm_{term.operand.replace('.', '')}" if component.kind == "sm" else term.operand
        return component.shown.format(name=component.name, value=shown)
    if constraint.text == "*":
        return component.name
    return plain or f"{component.name}{constraint.text}"


def _check_existed(component: Component, constraint: Constraint) -> None:
    """Raises SpecError for one version asked for by name that lies between those that there were."""
    term, known = _single_term(constraint), component.values
    if not (component.complete and known and term and component.kind == "version" and term.op in ("==", "in")):
        return
    if any(matches(component, constraint, value) for value in known) or "+" in term.operand:
        return
    if (neighbours := values.neighbours(component, term.operand)) is not None:
        below, above = (f"{component.name}={value}" for value in neighbours)
        raise SpecError(
            f"there never was a {component.name} {short(term.operand)}", f"next to it are {below} and {above}"
        )


def _contradictions(asks: Iterable[Ask], matrix: FactTable) -> list[Finding]:
    """Asks about one component that no value can satisfy together."""
    findings = []
    by_name: dict[str, list[Ask]] = {}
    for ask in asks:
        by_name.setdefault(ask.component, []).append(ask)
    for name, group in by_name.items():
        if len(group) > 1 and not have_common_value(matrix, name, [ask.constraint for ask in group]):
            texts = " and ".join(dict.fromkeys(ask.text for ask in group))
            findings.append(Finding(f"contradictory arguments: {texts}", hint=f"give {name} once"))
    return findings


def locked_asks(versions: Mapping[str, str], matrix: FactTable) -> tuple[Ask, ...]:
    """Asks for versions that were picked once; those that nobody knows any more are left out."""
    return tuple(
        parse_ask(matrix, name, f"=={value}", by=LOCK) for name, value in versions.items() if matrix.component(name)
    )
