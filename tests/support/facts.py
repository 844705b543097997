"""Small fact files, written and read as real ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild.matrix.facts.compile import compile_facts
from envbuild.matrix.facts.constraint_masks import requested_mask
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.load import load_facts
from envbuild.matrix.facts.model import Facts
from envbuild.matrix.facts.values import parse_request
from envbuild.matrix.solve.encoding import Request, pick_newest

VERSIONS = ["1.0", "2.0", "3.0"]
SOURCE = {"type": "measured", "where": "a test", "seen": "2026-11-21", "how": "made up"}


def fact(
    name: str, kind: str, when: Mapping[str, Any] | Sequence[Any], then: Mapping[str, Any] | None = None, **rest: Any
) -> dict[str, Any]:
    """Return a fact with one row, or with the rows that are (when, then) pairs. ``source``: the type of source."""
    pairs = [(when, then)] if isinstance(when, Mapping) else when
    source = {**SOURCE, "type": rest.pop("source", "measured")}
    strength = rest.pop("strength", "hard")
    if strength == "conditional":
        rest.setdefault("condition", "the user checks")
    rows = [{"when": dict(left), "then": dict(right or {})} for left, right in pairs]
    node = {"id": f"{name}", "kind": kind, "scope": "runtime", "strength": strength, "source": source, "rows": rows}
    return {**node, **rest}


def write(
    folder: Path,
    components: Mapping[str, Any],
    facts: Sequence[Mapping[str, Any]],
    questions: Mapping[str, Sequence[str]] | None = None,
    **rest: Any,
) -> Path:
    """Write a folder with one fact file. A component is its list of values (a version), or its keys; `rest` are other
    keys of the file. JSON is YAML."""
    full = {
        name: {"about": name, "kind": "version", **({"values": given} if isinstance(given, list) else given)}
        for name, given in components.items()
    }
    asks = {name: {"of": of, "about": name} for name, of in (questions or {}).items()}
    top = {"schema": 1, "components": full, "questions": asks, "facts": facts, **rest}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "facts.yaml").write_text(json.dumps({key: value for key, value in top.items() if value}, indent=1))
    return folder


def read(folder: Path, *args: Any, **rest: Any) -> Facts:
    """Return the text of such a file."""
    return load_facts([write(folder, *args, **rest)])


def matrix(folder: Path, *args: Any, **rest: Any) -> FactTable:
    """Return the matrix of such a file."""
    return compile_facts(read(folder, *args, **rest))


def requests(matrix: FactTable, *words: str) -> list[Request]:
    """Requests as the words of a command line, which are their ids too."""
    components = {component.name: component for component in matrix.components}
    found = []
    for word in words:
        component, constraint = parse_request(word, components)
        found.append(Request(word, component.name, requested_mask(matrix, component.name, constraint)))
    return found


def plan(given: FactTable, *words: str, waived: Sequence[str] = ()) -> dict[str, str] | None:
    """Return what is picked, or None."""
    found = pick_newest(given, requests(given, *words), waived)
    return None if found is None else given.named(found.assignment)
