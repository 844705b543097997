"""Several nodes compared: the values that most of them have, and the nodes that differ."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from .model import FAIL, MINOR, SCHEMA

# What differs between healthy nodes of one kind, or from minute to minute.
DEEPEST, LONGEST_KEY, LARGEST = 12, 100, 1 << 20  # of the facts of a node: levels, characters of a key, and of all
OWN = ("host", "slurm_node", "time", "user", "place_because", "bus")


@dataclass(frozen=True)
class Outlier:
    """A value of one node that differs. `usual`: what most nodes have; "" where no value has a majority."""

    node: str
    fact: str
    value: str
    usual: str
    count: int


@dataclass(frozen=True)
class Comparison:
    """The comparison of nodes. `failures`: node → checks that failed there; `minor`: node → those that are minor;
    `unread`: file → why; `missing`: nodes that are expected and have no answer."""

    nodes: tuple[str, ...]
    outliers: tuple[Outlier, ...]
    failures: dict[str, list[str]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    minor: dict[str, list[str]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return not (self.outliers or self.failures or self.unread or self.missing)


def compare_nodes(documents: dict[str, Any], unread: dict[str, str], expected: Collection[str] = ()) -> Comparison:
    """Compare the answers of ``envbuild doctor --json``, by their files. `expected`: the names of the nodes, those of
    their hosts or of Slurm."""
    nodes: dict[str, dict[str, str]] = {}
    by_bus = have_equal_buses(documents)
    failures: dict[str, list[str]] = {}
    minor: dict[str, list[str]] = {}
    names: set[str] = set()
    faults = dict(unread)
    for name, document in documents.items():
        facts = document.get("facts") if isinstance(document, dict) else None
        if not isinstance(facts, dict) or not facts.get("host"):
            faults[name] = "not an answer of envbuild doctor --json"
            continue
        if document.get("schema") != SCHEMA:
            faults[name] = f"of schema {document.get('schema')!s:.20}, and this envbuild reads {SCHEMA}"
            continue
        node = str(facts["host"])
        if node in nodes:
            faults[name] = f"a second file of node {node}"
            continue
        try:
            nodes[node] = bounded_values(facts, by_bus)
        except ValueError as error:
            faults[name] = str(error)
            continue
        results = document.get("results")
        rows = [row for row in results if isinstance(row, dict)] if isinstance(results, list) else []
        failed = [(str(row.get("check")), row.get("severity") == MINOR) for row in rows if row.get("status") == FAIL]
        for found, is_minor in ((failures, False), (minor, True)):
            if checks := [check for check, slight in failed if slight == is_minor]:
                found[node] = checks
        names |= {node, node.partition(".")[0], str(facts.get("slurm_node", ""))}
    missing = tuple(name for name in expected if name not in names)
    return Comparison(tuple(sorted(nodes)), tuple(find_outliers(nodes)), failures, faults, minor, missing)


def find_outliers(nodes: dict[str, dict[str, str]]) -> Iterator[Outlier]:
    """Yield the values that differ from those of most nodes."""
    for fact in sorted({fact for values in nodes.values() for fact in values}):
        inside = "]." in fact  # of a part of a list; that a node lacks the part is a line of its own
        values = {node: facts.get(fact, "") for node, facts in nodes.items() if not inside or fact in facts}
        ranked = Counter(values.values()).most_common(2)
        if len(ranked) < 2:
            continue
        usual, count = ranked[0]
        has_majority = count > len(values) / 2
        for node, value in sorted(values.items()):
            if not has_majority or value != usual:
                yield Outlier(node, fact, value or "nothing", usual or "nothing" if has_majority else "", count)


def bounded_values(facts: dict[str, Any], by_bus: bool) -> dict[str, str]:
    """Return the values of a node by their paths. Raises ValueError for a value that no doctor writes: a file of 4 MB
    that is nested deeply would have paths of gigabytes."""
    values: dict[str, str] = {}
    size = 0
    for path, value in flatten(facts, "", by_bus):
        size += len(path) + len(value)
        if size > LARGEST:
            raise ValueError("facts are too large for those of a node")
        values[path] = value
    return values


def have_equal_buses(documents: dict[str, Any]) -> bool:
    """Return whether the GPUs of all nodes have places on the bus that one of them has: then these are their names."""
    found = []
    for document in documents.values():
        with contextlib.suppress(KeyError, TypeError):
            found.append({str(gpu["bus"]) for gpu in document["facts"]["nvidia"]["gpus"]})
    most = max(found, key=len, default=set())
    return all(buses <= most for buses in found)


def flatten(value: Any, path: str, by_bus: bool, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield path → text of every value; parts of a list are named by their own name, where they have one. `by_bus`:
    whether that of a GPU is its bus. Raises ValueError for a value that is nested too deeply, and for a long key."""
    if depth > DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        for key, inner in value.items():
            if len(key) > LONGEST_KEY:
                raise ValueError("keys are too long for those of a node")
            if key not in OWN:
                yield from flatten(inner, f"{path}.{key}" if path else str(key), by_bus, depth + 1)
    elif isinstance(value, list):
        yield f"{path}.count", str(len(value))
        for number, inner in enumerate(value):
            name = (inner.get("port") or (by_bus and inner.get("bus"))) if isinstance(inner, dict) else None
            if name:
                yield f"{path}[{str(name)[:LONGEST_KEY]}]", "there"
            yield from flatten(inner, f"{path}[{str(name or number)[:LONGEST_KEY]}]", by_bus, depth + 1)
    else:
        yield path, str(value)
