"""Rows and requests as sentences."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from envbuild.matrix.facts.fact_table import HARDWARE, FactTable
from envbuild.matrix.facts.model import Component, Source
from envbuild.matrix.solve.request import Ask

VERBS = {
    "provides": "{when} comes with {then}",
    "requires": "{when} needs {then}",
    "limits": "{when} works with {then} only",
    "forbids": "{when} does not work with {then}",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A row of a fact as an answer cites it: `text` is the clause of a sentence, `rows` how many rows of the fact are
    meant (the first is shown). `example`: the others have other values."""

    fact: str
    kind: str
    text: str
    scope: str
    strength: str
    source: Source
    when: Mapping[str, str]
    then: Mapping[str, str]
    condition: str = ""
    hint: str = ""
    rows: int = 1
    default: bool = False
    example: bool = False

    @property
    def cited(self) -> str:
        return f"{self.text} [{self.fact}]"


def row_reason(
    matrix: FactTable, row: int, known: Mapping[str, str], rows: int = 1, *, plainly: bool = False
) -> Reason:
    """Return the statement of a row when components are as `known` has them (component → value, or the text of a
    request). `plainly`: state the row itself, not why it is an obstacle."""
    fact, when, then = matrix.fact(row), matrix.when(row), matrix.then(row)
    texts = {**then, **when}

    seen = {name: value for name, value in known.items() if fact.kind != "provides" or name not in then}

    # what a row allows is not an obstacle: where nothing names the component, all other values are
    restricts = fact.kind in ("limits", "requires")
    excluded = {name for name in then if restricts and name not in when and name not in seen}

    def filled(template: str) -> str:  # a provided value is that of its row, not that of the request
        return fill_template(template, matrix, seen, texts, excluded)

    text = "" if plainly else filled(fact.because)
    if not text:
        named = {name: wanted for name, wanted in when.items() if name in known or "-" not in wanted.split(" or ")}
        left = (
            " with ".join(value_phrase(matrix, name, wanted, known) for name, wanted in named.items()) or "everything"
        )
        right = " and ".join(value_phrase(matrix, name, wanted, {}) for name, wanted in then.items())
        text = VERBS[fact.kind].format(when=left, then=right) if right else f"{left} is known to work"
        if not named and fact.kind == "forbids":
            text = f"{right} does not work"
    own = "" if plainly else fill_template(fact.because, matrix, seen, {}, excluded)  # without the values of the row
    example = rows > 1 and text != own
    return Reason(
        fact.id,
        fact.kind,
        f"{text}, for example" if example else text,
        fact.scope,
        fact.strength,
        fact.source,
        when,
        then,
        filled(fact.condition),
        filled(fact.hint),
        rows,
        fact.default,
        example,
    )


def fill_template(
    template: str,
    matrix: FactTable,
    known: Mapping[str, str],
    texts: Mapping[str, str],
    excluded: Collection[str] = (),
) -> str:
    """Return the template with its ``{component}`` filled in, and ``{row.component}`` with the row's own value of it;
    ``torch=={torch}`` becomes ``torch<2.5`` for a request of that text. A component of `excluded` has another value
    than the row's: ``Python {python}`` becomes ``Python other than 3.9 or 3.10``."""

    def put(match: re.Match[str]) -> str:
        prefix, own, name = match[1] or "", match[2], match[3]
        value = (texts if own else known).get(name) or texts.get(name) or ""
        if not value or value in ("*", "-"):
            return name
        if name in excluded and not own:
            value = f"other than {value}"
        if re.match(r"[<>!~]|.* or |other than ", value):
            after_a_word = re.search(r"\w $", template[: match.start()]) is not None
            return value.replace("==", "") if after_a_word else f"{name} {value.replace('==', '')}"
        component = matrix.component(name)
        return prefix + (value_text(component, value) if component else value)

    text = re.sub(r"((?:[\w-]+==)?)\{(row\.)?([a-z0-9-]+)\}", put, template)
    return re.sub(r"(?i)\b([a-z][a-z0-9-]+) \1\b", r"\1", text)  # "CUDA {cuda}" of a CUDA without a version


def value_phrase(matrix: FactTable, name: str, wanted: str, known: Mapping[str, str]) -> str:
    """Return a component with its value or constraint: ``torch==2.8.0``, ``python 3.9 or 3.10``,
    ``driver>=525.60.13``."""
    component = matrix.component(name)
    if known.get(name, "*") != "*":  # "*" names no version, the constraint of a row does
        wanted = known[name]
    if component is None or wanted == "*":
        return name
    if wanted == "-":
        return f"no {name}"
    if component.kind == "sm":
        return wanted if "sm_" in wanted else f"a GPU of {value_text(component, wanted)}"
    bare = wanted.removeprefix("==")
    if " or " in wanted or "," in wanted or re.match(r"[<>!~]", bare):
        return f"{name} {wanted.replace('==', '')}" if " or " in wanted else f"{name}{wanted}"
    return component.shown.format(name=name, value=bare)


def value_text(component: Component, value: str) -> str:
    """Return a value as users read it inside a sentence."""
    bare = value.removeprefix("==")
    if component.kind == "sm" and re.fullmatch(r"\d+\.\d", bare):
        return f"sm_{bare.replace('.', '')}"
    return bare


def component_text(matrix: FactTable, name: str, chosen: Mapping[str, str]) -> str:
    """Return a component with its value: ``torch==2.8.0``, ``H100``."""
    component = matrix.component(name)
    assert component is not None
    return component.shown.format(name=name, value=value_text(component, chosen[name]))


def conclusion(asks: Sequence[Ask], matrix: FactTable, scope: str) -> str:
    """Return what follows for the user. Components that only name an origin are left out."""
    asks = [ask for ask in asks if (c := matrix.component(ask.component)) and not (c.hidden and c.kind == "name")]
    hardware = [ask for ask in asks if (c := matrix.component(ask.component)) and c.cost >= HARDWARE]
    rest = [f"{ask.text} ({ask.by})" if ask.by else ask.text for ask in asks if ask not in hardware]
    if hardware and rest:
        return f"{join_and(rest)} cannot run on {join_and([ask.text for ask in hardware])}"
    verb = {"install": "be installed", "build": "be built"}.get(scope, "run")
    texts = [*rest, *(ask.text for ask in hardware)]
    return f"{join_and(texts)} cannot {verb}{' together' if len(texts) > 1 else ''}" if texts else "nothing is possible"


def join_and(texts: Iterable[str]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    *first, last = list(texts)
    return f"{', '.join(first)} and {last}" if first else last


def join_or(texts: Iterable[str]) -> str:
    """Return ``a``, ``a or b``, ``a, b or c``."""
    *first, last = list(texts)
    return f"{', '.join(first)} or {last}" if first else last


def conflict_sentence(clauses: Iterable[str], reasons: Sequence[Reason], asks: Sequence[Ask], matrix: FactTable) -> str:
    """Return the sentence of a conflict: because of the `clauses`, which state its `reasons`."""
    parts = " and ".join(clauses)
    obstacles = sorted((one for one in reasons if not one.default), key=lambda one: one.kind == "provides")
    tail = conclusion(asks, matrix, obstacles[0].scope if obstacles else "")
    return f"Because {parts}, {tail}." if parts else f"{tail[0].upper()}{tail[1:]}: no version is all of that."
