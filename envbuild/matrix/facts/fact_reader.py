"""The reader of the facts in fact files: the value of each key, and every mistake in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date

from envbuild.core import yaml_nodes
from envbuild.core.yaml_nodes import Node, Table
from envbuild.core.yaml_reader import Reader, did_you_mean, short
from envbuild.matrix.facts import values
from envbuild.matrix.facts.components import PLACEHOLDER, is_empty, require_keys
from envbuild.matrix.facts.model import (
    KINDS,
    SCOPES,
    SOURCES,
    STRENGTHS,
    Component,
    Constraint,
    Fact,
    Question,
    Row,
    Source,
)
from envbuild.matrix.facts.values import InvalidValueError

NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
ID = rf"{NAME}\.[a-z0-9]+(-[a-z0-9]+)*"
ROW_KEYS = ("when", "then", "note")
CHOICES = {"kind": KINDS, "scope": SCOPES, "strength": STRENGTHS}
SENTENCES = ("because", "condition", "hint")
FACT_KEYS = ("id", "question", *CHOICES, *SENTENCES, "asserts", "known-to", "default", "source", "rows", *ROW_KEYS)
SOURCE_KEYS = ("type", "where", "seen", "how")


@dataclass
class References:
    """The names that facts may use. `read`: constraints read so far, by component and text."""

    reader: Reader
    components: Mapping[str, Component]
    questions: Mapping[str, Question]
    latest: date
    read: dict[tuple[str, str], Constraint] = field(default_factory=dict)


def read_facts(known: References, nodes: Iterable[Node]) -> dict[str, Fact]:
    """Return the facts of one folder."""
    found: dict[str, Fact] = {}
    for node in nodes:
        fact = _fact(known, node)
        if fact is not None and fact.id in found:
            hint = f"the first is at {found[fact.id].where}; give one of them another id"
            known.reader.wrong(fact.where, f"fact '{fact.id}' is defined twice in this folder", hint)
        elif fact is not None:
            found[fact.id] = fact
    return found


def _fact(known: References, node: Node) -> Fact | None:
    reader = known.reader
    if not isinstance(node, Table):
        reader.wrong(node.where, f"a fact must be keys with values, not {yaml_nodes.describe(node)}")
        return None
    nodes = reader.table(node, FACT_KEYS, "facts", "a fact")
    require_keys(reader, node.where, "a fact", nodes, ("id", "kind", "scope", "strength", "source"))
    given: dict[str, str | None] = {key: reader.text(nodes[key], key) for key in ("id", "question") if key in nodes}
    given |= {key: reader.choice(nodes[key], key, allowed) for key, allowed in CHOICES.items() if key in nodes}
    given |= {key: _sentence(known, nodes[key], key) for key in SENTENCES if key in nodes}
    texts = {key: value or "" for key, value in given.items()}
    if texts.get("id") and not re.fullmatch(ID, texts["id"]):
        hint = "write it as component.words-with-dashes"
        reader.wrong(nodes["id"].where, f"'{short(texts['id'])}' cannot be the id of a fact", hint)
    if (question := texts.get("question")) and question not in known.questions:
        hint = did_you_mean(question, known.questions, "the questions are")
        reader.wrong(nodes["question"].where, f"unknown question '{short(question)}'", hint)
    if texts.get("strength") == "conditional" and not texts.get("condition"):
        hint = "write under condition: what the user must ensure"
        reader.wrong(node.where, "a conditional fact needs a condition", hint)
    source = _source(known, nodes["source"]) if "source" in nodes else None
    rows = _rows(known, node, nodes, answers=bool(question))
    if not texts.get("id"):
        return None
    rest = {key: texts.get(key, "") for key in ("kind", "scope", "strength", "question", *SENTENCES)}
    default = bool(reader.value(nodes["default"], bool, "default")) if "default" in nodes else False
    place = source or Source("", "", "", "")
    asserts = (reader.choice(nodes["asserts"], "asserts", ("compatible",)) or "") if "asserts" in nodes else ""
    ends = _newest_versions(known, nodes["known-to"]) if "known-to" in nodes else {}
    rest["asserts"] = asserts
    return Fact(
        id=texts["id"],
        source=place,
        rows=rows,
        where=node.where,
        default=default,
        replaces=False,
        known_to=ends,
        **rest,
    )


def _newest_versions(known: References, node: Node) -> dict[str, str]:
    """Return component → the newest version that the source of a fact knew."""
    found: dict[str, str] = {}
    for name, (place, value) in known.reader.entries(node, "known-to").items():
        component = known.components.get(name)
        text = known.reader.text(value, "known-to")
        try:
            if component is None or component.kind != "version":
                hint = did_you_mean(name, known.components, "the components are")
                known.reader.wrong(
                    place.where, f"'known-to' needs a component with versions, not '{short(name)}'", hint
                )
            elif text is not None:
                found[name] = values.normalize_value(component, text)
        except InvalidValueError as error:
            known.reader.wrong(value.where, error.message, error.hint)
    return found


def _source(known: References, node: Node) -> Source:
    reader = known.reader
    if isinstance(node, Table):
        for key, (place, value) in node.entries.items():
            if key not in SOURCE_KEYS and is_empty(value):  # {how: one, two}: YAML takes what follows for a key
                hint = "put the whole text into quotes"
                reader.wrong(place.where, f"'{short(key)}' is after a comma that ends the text before it", hint)
        node = Table({key: entry for key, entry in node.entries.items() if not is_empty(entry[1])}, node.where)
    nodes = reader.table(node, SOURCE_KEYS, "source", "a source")
    if isinstance(node, Table):
        require_keys(reader, node.where, "a source", nodes, ("type", "where", "seen"))
    kind = reader.choice(nodes["type"], "type", SOURCES) if "type" in nodes else None
    texts = {key: reader.text(nodes[key], key, folded=True) for key in ("where", "seen", "how") if key in nodes}
    if (where := texts.get("where")) is not None and not where:
        reader.wrong(nodes["where"].where, "'where' is empty", "name the document, or the repository, commit and path")
    if (seen := texts.get("seen")) is not None and (fault := _date_fault(seen, known.latest)):
        hint = "or the clock of this machine is wrong" if "future" in fault else "write the day as YYYY-MM-DD"
        reader.wrong(nodes["seen"].where, f"'seen' {fault}", hint)
    return Source(kind or "", texts.get("where") or "", texts.get("seen") or "", texts.get("how") or "")


def _date_fault(text: str, latest: date) -> str:
    try:
        day = date.fromisoformat(text) if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else None
    except ValueError:
        day = None
    if day is None:
        return f"is not a date: '{short(text)}'"
    return f"is in the future: {text}" if day > latest else ""


def _sentence(known: References, node: Node, key: str) -> str | None:
    """Return a text in which ``{component}`` is a placeholder for the picked value."""
    text = known.reader.text(node, key, folded=True)
    names = [name.removeprefix("row.") for name in re.findall(PLACEHOLDER, text or "")]
    for name in names:
        if name not in known.components:
            hint = did_you_mean(name, known.components, "the components are")
            known.reader.wrong(node.where, f"'{key}' names an unknown component {{{short(name)}}}", hint)
    if re.search(r"[{}]", re.sub(PLACEHOLDER, "", text or "")):
        known.reader.wrong(node.where, f"'{key}' has a brace without its other half")
    return text


def _rows(known: References, node: Table, nodes: Mapping[str, Node], *, answers: bool) -> tuple[Row, ...]:
    """Return the rows of a fact; a fact with a single row may contain its keys itself. `answers`: it has a question."""
    reader = known.reader
    own = {key: nodes[key] for key in ROW_KEYS if key in nodes}
    if "rows" not in nodes:
        if own:
            return (_row(known, node, own, answers=answers),)
        reader.wrong(node.where, "a fact needs rows", "write rows: [{when: …, then: …}]")
        return ()
    if own:
        key = next(iter(own))
        reader.wrong(own[key].where, f"'{key}' beside 'rows'", "put it into a row")
    listed, rows = nodes["rows"], []
    for item in reader.items(listed, "rows"):
        if isinstance(item, Table):
            rows.append(_row(known, item, reader.table(item, ROW_KEYS, "rows", "a row"), answers=answers))
        else:
            reader.wrong(item.where, f"a row must be keys with values, not {yaml_nodes.describe(item)}")
    if is_empty(listed):
        reader.wrong(listed.where, "'rows' is empty", "write rows: [{when: …, then: …}]")
    return tuple(rows)


def _row(known: References, node: Table, nodes: Mapping[str, Node], *, answers: bool) -> Row:
    reader = known.reader
    when = read_constraints(known, nodes["when"], "when") if "when" in nodes else {}
    then = read_constraints(known, nodes["then"], "then") if "then" in nodes else {}
    note = reader.text(nodes["note"], "note", folded=True) if "note" in nodes else None
    for name in when.keys() & then.keys():
        hint = "keep it under 'when' if it is what the row is for, under 'then' if it is what the row requires"
        reader.wrong(node.where, f"'{name}' is both under 'when' and under 'then'", hint)
    condition = nodes.get("when")  # with an empty 'then' it may still answer, or state that versions are compatible
    cases = len(condition.entries) if isinstance(condition, Table) else 0
    if "then" not in nodes or (is_empty(nodes["then"]) and cases < (1 if answers else 2)):
        hint = "write then: {component: constraint}; then: {} only with a question, or with two components under 'when'"
        reader.wrong(node.where, "a row without effect", hint)
    return Row(when, then, node.where, note or "")


def read_constraints(known: References, node: Node, key: str) -> dict[str, Constraint]:
    found: dict[str, Constraint] = {}
    for name, (place, value) in known.reader.entries(node, key).items():
        component = known.components.get(name)
        if component is None:
            hint = did_you_mean(name, known.components, "the components are")
            known.reader.wrong(place.where, f"unknown component '{short(name)}'", hint)
        elif component.kind and (wanted := _constraint(known, component, value)) is not None:
            found[name] = wanted
    return dict(sorted(found.items()))


def _constraint(known: References, component: Component, node: Node) -> Constraint | None:
    reader, name = known.reader, component.name
    try:
        if isinstance(node, Table):
            before = len(reader.findings)
            keys = {key: reader.texts(value, key) for key, (_, value) in node.entries.items()}
            return values.parse_constraint(component, keys) if len(reader.findings) == before else None
        if isinstance(node, yaml_nodes.Sequence):
            parts = [_constraint(known, component, item) for item in node.items if not isinstance(item, Table)]
            if len(parts) < len(node.items):
                raise InvalidValueError(f"'{name}' is a list of more than texts", f'write {name}: ["…", "…"]')
            return None if None in parts else values.join_constraints(part for part in parts if part is not None)
        text = reader.text(node, name)
        if text is None:
            return None
        if (name, text) not in known.read:
            known.read[name, text] = values.parse_constraint(component, text)
        return known.read[name, text]
    except InvalidValueError as error:
        reader.wrong(node.where, error.message, error.hint)
        return None
