"""Fact files: ``envbuild/matrix/facts/*.yaml``, those below ``derived/`` there, and ``facts/*.yaml`` of a project.

    schema: 1
    components:
      driver: {kind: version, about: NVIDIA driver of the host, rank: 90, cost: 6, exact: true}
      torch: {values: ["2.8.0"]}            # without kind: more values of a component that another file defines
    questions:
      torch-sm: {of: [torch, sm], about: which GPUs the torch wheel has code for}
    facts:
    - id: torch.wheel-arch
      question: torch-sm
      kind: limits
      scope: runtime
      strength: hard
      because: "torch=={torch}'s wheel carries no code for {sm}"
      source: {type: measured, where: FILE, seen: "2026-11-21", how: architecture string read}
      rows:
      - {when: {torch: "==2.8.0", arch: amd64}, then: {sm: {cubins: ["70", "75"]}}}

The names of the files and the order of what stands in them do not matter. A fact of a later folder replaces the fact of
the same id of an earlier one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from functools import partial
from itertools import pairwise
from pathlib import Path

from envbuild import yamlfile
from envbuild.errors import SpecError
from envbuild.fields import Reader, did_you_mean, short
from envbuild.matrix import values
from envbuild.matrix.components import PLACEHOLDER, is_empty, needs, read_components, read_questions
from envbuild.matrix.model import (
    KINDS,
    SCOPES,
    SOURCES,
    STRENGTHS,
    Component,
    Constraint,
    Fact,
    Facts,
    Question,
    Row,
    Source,
)
from envbuild.matrix.values import BadValue
from envbuild.ordering import ordered
from envbuild.yamlfile import Node, Scalar, Table

NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
ID = rf"{NAME}\.[a-z0-9]+(-[a-z0-9]+)*"
TOP = ("schema", "components", "questions", "facts")
ROW_KEYS = ("when", "then", "note")
CHOICES = {"kind": KINDS, "scope": SCOPES, "strength": STRENGTHS}
SENTENCES = ("because", "condition", "hint")
FACT_KEYS = ("id", "question", *CHOICES, *SENTENCES, "default", "source", "rows", *ROW_KEYS)
SOURCE_KEYS = ("type", "where", "seen", "how")


def load_facts(folders: Sequence[Path]) -> Facts:
    """Everything that the fact files below `folders` say. Raises SpecError with every mistake of all files."""
    reader = Reader()
    read = _Files()
    for folder in folders:
        _folder(reader, folder, read)
    if read.unread:
        reader.finish()
    components = read_components(reader, read.components)
    # A day is written where the writer is: the date line is 14 hours ahead of UTC.
    known = _Known(reader, components, {}, datetime.now(timezone(timedelta(hours=14))).date())
    questions = known.questions = read_questions(reader, read.questions, components, partial(_constraints, known))
    facts: dict[str, Fact] = {}
    for layer in read.facts:
        facts |= _layer(known, layer)
    _circles(reader, components, facts)
    reader.finish()
    if not (components and facts):
        names = ", ".join(yamlfile.shown(folder) for folder in folders)
        raise SpecError("there are no facts", f"they are read from *.yaml in: {names}")
    return Facts(
        {name: components[name] for name in sorted(components, key=lambda name: (components[name].rank, name))},
        {name: questions[name] for name in sorted(questions)},
        {name: facts[name] for name in sorted(facts)},
        digest(folders),
    )


def files(folder: Path) -> list[Path]:
    """The fact files of one folder, by name: people's, then those that collectors wrote."""
    return [path for place in (folder, folder / "derived") for path in sorted(place.glob("*.yaml"))]


def digest(folders: Sequence[Path]) -> str:
    """sha256 over the bytes of the files, whatever their names. Raises SpecError for a file that cannot be read."""
    whole = hashlib.sha256()
    for folder in folders:
        try:
            parts = sorted(hashlib.sha256(path.read_bytes()).digest() for path in files(folder))
        except OSError as error:
            raise SpecError(f"cannot be read: {error.strerror}", where=yamlfile.shown(folder)) from None
        whole.update(len(parts).to_bytes(4, "big") + b"".join(parts))
    return whole.hexdigest()


@dataclass
class _Files:
    """The nodes of all files: components and questions with the nodes of their names, facts by folder."""

    components: list[tuple[Scalar, Table]] = field(default_factory=list)
    questions: list[tuple[Scalar, Table]] = field(default_factory=list)
    facts: list[list[Node]] = field(default_factory=list)
    unread: bool = False  # a file is left out: what it defines would be missed everywhere else


def _folder(reader: Reader, folder: Path, read: _Files) -> None:
    read.facts.append([])
    for path in files(folder):
        try:
            top = reader.load(path)
            reader.schema(top, "fact file")
        except SpecError as error:  # this file cannot be judged; the others can
            reader.findings.extend(error.findings)
            read.unread = True
            continue
        nodes = reader.table(top, TOP, "fact file", "a fact file")
        if not top.entries.keys() - {"schema"}:
            reader.wrong(top.where, "the file says nothing", "it holds components, questions or facts")
        read.components += _named(reader, nodes, "components")
        read.questions += _named(reader, nodes, "questions")
        read.facts[-1] += reader.items(nodes["facts"], "facts") if "facts" in nodes else ()


def _named(reader: Reader, nodes: Mapping[str, Node], key: str) -> list[tuple[Scalar, Table]]:
    """The entries under `key` that have a name and keys."""
    found = []
    for name, (place, node) in reader.entries(nodes[key], key).items() if key in nodes else ():
        if not re.fullmatch(NAME, name):
            reader.wrong(place.where, f"'{short(name)}' cannot be a name", "names are lower-case words with dashes")
        elif isinstance(node, Table):
            found.append((place, node))
        else:
            reader.wrong(node.where, f"'{name}' must be keys with values, not {yamlfile.describe(node)}")
    return found


# --- facts


@dataclass
class _Known:
    """What facts may name. `read`: constraints read so far, by component and text."""

    reader: Reader
    components: Mapping[str, Component]
    questions: Mapping[str, Question]
    latest: date
    read: dict[tuple[str, str], Constraint] = field(default_factory=dict)


def _layer(known: _Known, nodes: Iterable[Node]) -> dict[str, Fact]:
    """The facts of one folder."""
    found: dict[str, Fact] = {}
    for node in nodes:
        fact = _fact(known, node)
        if fact is not None and fact.id in found:
            hint = f"the first is at {found[fact.id].where}; give one of them another id"
            known.reader.wrong(fact.where, f"fact '{fact.id}' stands here twice", hint)
        elif fact is not None:
            found[fact.id] = fact
    return found


def _fact(known: _Known, node: Node) -> Fact | None:
    reader = known.reader
    if not isinstance(node, Table):
        reader.wrong(node.where, f"a fact must be keys with values, not {yamlfile.describe(node)}")
        return None
    nodes = reader.table(node, FACT_KEYS, "facts", "a fact")
    needs(reader, node.where, "a fact", nodes, ("id", "kind", "scope", "strength", "source"))
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
        hint = "say under condition: what must be seen to"
        reader.wrong(node.where, "a conditional fact needs a condition", hint)
    source = _source(known, nodes["source"]) if "source" in nodes else None
    rows = _rows(known, node, nodes, answers=bool(question))
    if not texts.get("id"):
        return None
    rest = {key: texts.get(key, "") for key in ("kind", "scope", "strength", "question", *SENTENCES)}
    default = bool(reader.value(nodes["default"], bool, "default")) if "default" in nodes else False
    place = source or Source("", "", "", "")
    return Fact(id=texts["id"], source=place, rows=rows, where=node.where, default=default, **rest)


def _source(known: _Known, node: Node) -> Source:
    reader = known.reader
    if isinstance(node, Table):
        for key, (place, value) in node.entries.items():
            if key not in SOURCE_KEYS and is_empty(value):  # {how: one, two}: YAML takes what follows for a key
                hint = "put the whole text into quotes"
                reader.wrong(place.where, f"'{short(key)}' stands after a comma that ends the text before it", hint)
        node = Table({key: entry for key, entry in node.entries.items() if not is_empty(entry[1])}, node.where)
    nodes = reader.table(node, SOURCE_KEYS, "source", "a source")
    if isinstance(node, Table):
        needs(reader, node.where, "a source", nodes, ("type", "where", "seen"))
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
        return f"is no date: '{short(text)}'"
    return f"is in the future: {text}" if day > latest else ""


def _sentence(known: _Known, node: Node, key: str) -> str | None:
    """Text in which ``{component}`` stands for what was picked."""
    text = known.reader.text(node, key, folded=True)
    names = [name.removeprefix("row.") for name in re.findall(PLACEHOLDER, text or "")]
    for name in names:
        if name not in known.components:
            hint = did_you_mean(name, known.components, "the components are")
            known.reader.wrong(node.where, f"'{key}' names an unknown component {{{short(name)}}}", hint)
    if re.search(r"[{}]", re.sub(PLACEHOLDER, "", text or "")):
        known.reader.wrong(node.where, f"'{key}' has a brace without its other half")
    return text


def _rows(known: _Known, node: Table, nodes: Mapping[str, Node], *, answers: bool) -> tuple[Row, ...]:
    """The rows of a fact; one that has only one may hold it itself. `answers`: it has a question."""
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
            reader.wrong(item.where, f"a row must be keys with values, not {yamlfile.describe(item)}")
    if is_empty(listed):
        reader.wrong(listed.where, "'rows' is empty", "write rows: [{when: …, then: …}]")
    return tuple(rows)


def _row(known: _Known, node: Table, nodes: Mapping[str, Node], *, answers: bool) -> Row:
    reader = known.reader
    when = _constraints(known, nodes["when"], "when") if "when" in nodes else {}
    then = _constraints(known, nodes["then"], "then") if "then" in nodes else {}
    note = reader.text(nodes["note"], "note", folded=True) if "note" in nodes else None
    for name in when.keys() & then.keys():
        hint = "keep it under 'when' if it is what the row is for, under 'then' if it is what the row says"
        reader.wrong(node.where, f"'{name}' is both under 'when' and under 'then'", hint)
    told = nodes.get("when")  # with an empty 'then' it may still answer, or say that things go together
    cases = len(told.entries) if isinstance(told, Table) else 0
    if "then" not in nodes or (is_empty(nodes["then"]) and cases < (1 if answers else 2)):
        hint = "write then: {component: constraint}; then: {} only with a question, or with two components under 'when'"
        reader.wrong(node.where, "a row that says nothing", hint)
    return Row(when, then, node.where, note or "")


def _constraints(known: _Known, node: Node, key: str) -> dict[str, Constraint]:
    found: dict[str, Constraint] = {}
    for name, (place, value) in known.reader.entries(node, key).items():
        component = known.components.get(name)
        if component is None:
            hint = did_you_mean(name, known.components, "the components are")
            known.reader.wrong(place.where, f"unknown component '{short(name)}'", hint)
        elif component.kind and (wanted := _constraint(known, component, value)) is not None:
            found[name] = wanted
    return dict(sorted(found.items()))


def _constraint(known: _Known, component: Component, node: Node) -> Constraint | None:
    reader, name = known.reader, component.name
    try:
        if isinstance(node, Table):
            before = len(reader.findings)
            keys = {key: reader.texts(value, key) for key, (_, value) in node.entries.items()}
            return values.constraint(component, keys) if len(reader.findings) == before else None
        if isinstance(node, yamlfile.Sequence):
            parts = [_constraint(known, component, item) for item in node.items if not isinstance(item, Table)]
            if len(parts) < len(node.items):
                raise BadValue(f"'{name}' is a list of more than texts", f'write {name}: ["…", "…"]')
            return None if None in parts else values.either(part for part in parts if part is not None)
        text = reader.text(node, name)
        if text is None:
            return None
        if (name, text) not in known.read:
            known.read[name, text] = values.constraint(component, text)
        return known.read[name, text]
    except BadValue as error:
        reader.wrong(node.where, error.message, error.hint)
        return None


def _circles(reader: Reader, components: Mapping[str, Component], facts: Mapping[str, Fact]) -> None:
    """Hidden components follow from others; those that follow from each other in a circle follow from nothing."""
    follows: dict[str, dict[str, str]] = {name: {} for name, component in components.items() if component.hidden}
    for fact in facts.values() if follows else ():
        if fact.kind == "provides":
            for row in fact.rows:
                for name in row.then.keys() & follows.keys():
                    follows[name] |= dict.fromkeys(row.when.keys() & follows.keys(), row.where)
    _, circle = ordered(follows)
    if circle:
        steps = ", ".join(f"'{name}' from '{other}'" for name, other in pairwise(circle))
        hint = "one of them must follow from something that people name"
        reader.wrong(follows[circle[0]][circle[1]], f"hidden components follow from each other: {steps}", hint)
