"""The changes of a derived file by a refresh, row by row, in readable form; and what a refresh would remove.

Files are compared as plain trees (texts, lists, mappings), in which ``true`` is a text: that is how
`envbuild.core.yaml_nodes` reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envbuild.core.errors import Finding
from envbuild.core.text import human_list
from envbuild.matrix.collect.fact_writer import Derived, YamlTree


def derived_tree(derived: Derived) -> YamlTree:
    """Return the same tree of what a collector returned; `seen` is empty."""
    facts = [{**fact.node(""), "rows": [row.node() for row in fact.rows]} for fact in derived.facts]
    return {
        "components": _value_texts(derived.components),
        "questions": _value_texts(derived.questions),
        "facts": _value_texts(facts),
    }


def unchanged_facts(old: YamlTree, new: YamlTree) -> dict[str, str]:
    """Return fact id → the day on which it was seen, of facts whose content did not change."""
    before = {fact["id"]: fact for fact in list_facts(old)}
    found = {}
    for fact in list_facts(new):
        other = before.get(fact["id"])
        if other is not None and _without_day(other) == _without_day(fact):
            found[fact["id"]] = str(other.get("source", {}).get("seen", ""))
    return found


def diff_lines(old: YamlTree, new: YamlTree) -> Iterator[str]:
    """Yield the differences: ``+`` added, ``-`` gone, ``~`` changed."""
    for part in ("components", "questions"):
        before, after = _table(old.get(part)), _table(new.get(part))
        for name in sorted(before.keys() | after.keys()):
            yield from _entry(name, before.get(name), after.get(name))
    were, are = ({fact["id"]: fact for fact in list_facts(tree)} for tree in (old, new))
    for id in sorted(were.keys() | are.keys()):
        own = list(_fact(were.get(id, {}), are.get(id, {})))
        if id not in were or id not in are:
            sign, count = ("+", len(own)) if id in are else ("-", len(own))
            yield f"{sign} fact {id}, {count} {'row' if count == 1 else 'rows'}"
        elif own:
            yield f"{id}"
        yield from (f"  {line}" for line in own)


def find_missing_rows(old: YamlTree, new: YamlTree, where: str) -> Iterator[Finding]:
    """Report facts with fewer rows and components with fewer values: signs of a changed page or a half-read index."""
    after = {fact["id"]: fact for fact in list_facts(new)}
    for fact in list_facts(old):
        now, was = list_rows(after.get(fact["id"], {})), list_rows(fact)
        if len(now) < len(was):
            gone = [_key(row) for row in was if _key(row) not in {_key(row) for row in now}]
            yield Finding(f"{fact['id']} would have {len(now)} instead of {len(was)} rows{_gone(gone)}", where)
    for name, entry in _table(old.get("components")).items():
        values, rest = (
            list(entry.get("values", ())),
            list(_table(new.get("components")).get(name, {}).get("values", ())),
        )
        if len(rest) < len(values):
            gone = [str(value) for value in values if value not in rest]
            yield Finding(f"{name} would have {len(rest)} instead of {len(values)} versions{_gone(gone)}", where)


def _fact(old: YamlTree, new: YamlTree) -> Iterator[str]:
    before, after = _by_when(old), _by_when(new)
    for key in [*after, *(key for key in before if key not in after)]:
        were, are = before.get(key, []), after.get(key, [])
        if len(were) == len(are) == 1:
            if were[0] != are[0]:
                yield f"~ {key}: {_then_text(were[0])} → {_then_text(are[0])}{_only_note(were[0], are[0])}"
            continue
        yield from (f"+ {key}: {_then_text(row)}" for row in are if row not in were)
        yield from (f"- {key}: {_then_text(row)}" for row in were if row not in are)
    if old and new:
        yield from _header(old, new)


def _header(old: YamlTree, new: YamlTree) -> Iterator[str]:
    was, now = ({key: value for key, value in fact.items() if key != "rows"} for fact in (old, new))
    for key in sorted(was.keys() | now.keys()):
        one, other = (_without_day(node).get(key, "") for node in (was, now))
        if one != other:
            yield f"~ {key}: {_text(one)} → {_text(other)}"


def _entry(name: str, old: Any, new: Any) -> Iterator[str]:
    """Yield the differences of a component or a question."""
    if old == new:
        return
    if not isinstance(old, dict) or not isinstance(new, dict):
        yield f"{'-' if new is None else '+'} {name}: {_text(old if new is None else new)}"
        return
    were, are = list(old.get("values", ())), list(new.get("values", ()))
    yield from (f"+ {name} {value}" for value in are if value not in were)
    yield from (f"- {name} {value}" for value in were if value not in are)
    rest = [{key: value for key, value in entry.items() if key != "values"} for entry in (old, new)]
    if rest[0] != rest[1] or sorted(were) == sorted(are):
        yield f"~ {name}: {_text(rest[0])} → {_text(rest[1])}"


def _by_when(fact: YamlTree) -> dict[str, list[YamlTree]]:
    found: dict[str, list[YamlTree]] = {}
    for row in list_rows(fact):
        found.setdefault(_key(row), []).append(row)
    return found


def _key(row: YamlTree) -> str:
    """Return the condition of a row: ``torch ==2.8.0, arch amd64``."""
    return ", ".join(f"{name} {_text(value)}" for name, value in sorted(row.get("when", {}).items())) or "always"


def _then_text(row: YamlTree) -> str:
    then = ", ".join(f"{name} {_text(value)}" for name, value in sorted(row.get("then", {}).items()))
    return then or row.get("note", "") or "nothing"


def _only_note(old: YamlTree, new: YamlTree) -> str:
    same = {key: value for key, value in old.items() if key != "note"} == {
        key: value for key, value in new.items() if key != "note"
    }
    return f" ({old.get('note', 'no note')} → {new.get('note', 'no note')})" if same else ""


def _gone(gone: Sequence[str]) -> str:
    return f"; gone: {human_list(gone, 5, separator='; ')}" if gone else ""


def list_facts(tree: YamlTree) -> list[YamlTree]:
    """Return the facts of a file, without anything else that may be among them."""
    facts = tree.get("facts")
    return [fact for fact in facts if isinstance(fact, dict) and "id" in fact] if isinstance(facts, list) else []


def list_rows(fact: YamlTree) -> list[YamlTree]:
    """Return the rows of a fact."""
    rows = fact.get("rows")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _table(node: Any) -> dict[str, Any]:
    return node if isinstance(node, dict) else {}


def _without_day(fact: YamlTree) -> YamlTree:
    source = {key: value for key, value in _table(fact.get("source")).items() if key != "seen"}
    return {**fact, "source": source}


def _text(node: Any) -> str:
    return node if isinstance(node, str) else json.dumps(node, ensure_ascii=False).replace('"', "")


def _value_texts(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {str(key): _value_texts(value) for key, value in node.items()}
    if isinstance(node, bool):
        return "true" if node else "false"
    return str(node) if isinstance(node, str | int) else [_value_texts(item) for item in node]
