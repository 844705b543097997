"""Requests to the matrix, and their syntax on a command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from envbuild.core.errors import Finding, SpecError
from envbuild.core.text import human_list
from envbuild.core.yaml_reader import short
from envbuild.matrix.facts import values, version
from envbuild.matrix.facts.constraint_masks import have_common_value
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.model import Component, Constraint, Term
from envbuild.matrix.facts.value_match import matches

LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Ask:
    """One requirement of a request: `component` is to be as `constraint` has it. `text` is how users read it
    (``torch==2.0.1``), `where` the place in a file, `by` its origin when it is not the user ("target h100-ib")."""

    component: str
    constraint: Constraint
    text: str
    where: str = ""
    by: str = ""


def ask_place(names: Iterable[str], asks: Iterable[Ask]) -> str:
    """Return the place in a spec of the first of the components `names` that has one; "" when none has."""
    places = {ask.component: ask.where for ask in asks if ask.where}
    return next((places[name] for name in names if name in places), "")


def parse_request(words: Sequence[str], matrix: FactTable) -> tuple[Ask, ...]:
    """Return the request that ``torch=2.0.1 gpu=H100 apex`` makes. Raises SpecError with every mistake."""
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
    """Return `asks` with the `exact` ones in place of those of the same components."""
    known = {ask.component: ask for ask in exact}
    kept = [replace(known[ask.component], where=ask.where) if ask.component in known else ask for ask in asks]
    return tuple(
        dict.fromkeys([*kept, *(ask for ask in known.values() if ask.component not in {k.component for k in kept})])
    )


def is_known_value(matrix: FactTable, name: str, value: str) -> bool:
    """Return whether the facts list this value of a component."""
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
    if by != LOCK:  # what was locked did exist, even if the facts do not list it
        _check_existed(matrix, component, constraint)
    return Ask(component.name, constraint, ask_text(component, constraint, plain), where, by)


def _single_term(constraint: Constraint) -> Term | None:
    """Return the one term of a constraint that has one."""
    one = constraint.alternatives[0] if len(constraint.alternatives) == 1 else ()
    return one[0] if len(one) == 1 else None


def ask_text(component: Component, constraint: Constraint, plain: str = "") -> str:
    """Return a requirement as users read it: ``H100``, ``torch==2.0.1``, ``torch>=2.1``."""
    term = _single_term(constraint)
    if term and term.op in ("==", "is", "in") and term.operand:
        operand = f"sm_{term.operand.replace('.', '')}" if component.kind == "sm" else term.operand
        return component.shown.format(name=component.name, value=operand)
    if constraint.text == "*":
        return component.name
    return plain or f"{component.name}{constraint.text}"


def _check_existed(matrix: FactTable, component: Component, constraint: Constraint) -> None:
    """Raise SpecError for one version requested by name that a complete list lacks: it falls between those that
    existed, or it is a build that was never made of one of them."""
    term, known = _single_term(constraint), component.values
    if not (component.complete and known and term and component.kind == "version" and term.op in ("==", "in")):
        return
    if any(matches(component, constraint, value) for value in known):
        return
    public, plus, label = term.operand.partition("+")
    if plus:
        _check_built(matrix, component, public, label)
        return
    if (neighbours := values.neighbours(component, term.operand)) is not None:
        below, above = (f"{component.name}={value}" for value in neighbours)
        raise SpecError(f"{component.name} {short(term.operand)} does not exist", f"nearest: {below} and {above}")


def _check_built(matrix: FactTable, component: Component, public: str, label: str) -> None:
    """Raise SpecError for a build with a local label that the builds of its release lack (``2.4.1+cu126``)."""
    if component.labelled and version.public_key(public) > version.public_key(component.labelled):
        return
    known = matrix.values[matrix.number[component.name]]
    builds = [value for value in known if value.startswith(f"{public}+")]
    if not builds or f"{public}+{label}" in builds or not label.startswith(component.labels or ("+",)):
        return
    hint = f"its builds are: {human_list([f'{component.name}={value}' for value in builds], len(builds))}"
    raise SpecError(f"{component.name} {short(public)}+{short(label)} does not exist", hint)


def _contradictions(asks: Iterable[Ask], matrix: FactTable) -> list[Finding]:
    """Return findings for requirements of one component that no value satisfies together."""
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
    """Return requirements for versions that were picked once; those that are unknown now are left out."""
    return tuple(
        parse_ask(matrix, name, f"=={value}", by=LOCK) for name, value in versions.items() if matrix.component(name)
    )
