"""The parts of a derived fact file, and its writer: sorted, one row on one line, the same bytes for the same
content.

A collector is a function ``collect(context) -> dict[str, Derived]``: stem of the file → content. `envbuild matrix
refresh` has the table of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from envbuild.core import yaml_nodes, yaml_parser
from envbuild.core.console import Reporter
from envbuild.core.errors import Finding, InputError, SpecError
from envbuild.matrix.collect.remote_wheel import Wheels
from envbuild.net.python_index import PackageIndex

HEADER = "# Written by `envbuild matrix refresh`; do not edit.\n"
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]*( [A-Za-z0-9(][A-Za-z0-9_./+()-]*)*")
RESERVED = {"yes", "no", "y", "n", "true", "false", "on", "off", "null"}  # which YAML readers do not read as text
THREADS = 6
MAX_FINDINGS = 5  # more of them have one cause

T = TypeVar("T")
S = TypeVar("S")
YamlTree = dict[str, Any]
RunProgram = Callable[[bytes, Sequence[str]], tuple[int, str]]
FlowNode = str | bool | int | Sequence["FlowNode"] | Mapping[str, "FlowNode"]


@dataclass(frozen=True, slots=True)
class DerivedRow:
    """As `envbuild.matrix.facts.model.Row`, with constraints as the file has them. `note` names what was read (a
    digest)."""

    when: Mapping[str, FlowNode]
    then: Mapping[str, FlowNode]
    note: str = ""

    def node(self) -> dict[str, FlowNode]:
        found: dict[str, FlowNode] = {"when": self.when, "then": self.then}
        return found | ({"note": self.note} if self.note else {})


@dataclass(frozen=True, slots=True)
class DerivedFact:
    """As `envbuild.matrix.facts.model.Fact`. `where` and `how` are of its source; `seen` is left to the refresh."""

    id: str
    kind: str
    scope: str
    type: str
    where: str
    how: str
    rows: tuple[DerivedRow, ...]
    question: str = ""
    strength: str = "hard"
    because: str = ""
    condition: str = ""
    hint: str = ""
    default: bool = False

    def node(self, seen: str) -> dict[str, FlowNode]:
        """Return everything but the rows."""
        found: dict[str, FlowNode] = {"id": self.id}
        for key in ("question", "kind", "scope", "strength", "because", "condition", "hint"):
            if value := getattr(self, key):
                found[key] = value
        found |= {"default": True} if self.default else {}
        return found | {"source": {"type": self.type, "where": self.where, "seen": seen, "how": self.how}}


@dataclass(frozen=True, slots=True)
class Derived:
    """One file. `components` extends or defines components, `questions` defines questions."""

    components: Mapping[str, Mapping[str, FlowNode]] = field(default_factory=dict)
    questions: Mapping[str, Mapping[str, FlowNode]] = field(default_factory=dict)
    facts: tuple[DerivedFact, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """The sources and the reporter of collectors. Network errors are raised as InputError.

    run: runs a program out of a package, with arguments, where it reaches nothing of this machine; returns its exit
    code and its output.
    """

    index: PackageIndex
    wheels: Wheels
    reporter: Reporter
    run: RunProgram
    folders: tuple[Path, ...] = ()  # where derived files are

    def before(self, stem: str) -> YamlTree:
        """Return a derived file as it is in the first folder that has it. Raise SpecError."""
        return next((tree for folder in self.folders if (tree := read_derived(folder / f"{stem}.yaml"))), {})

    def each(self, task: str, text: str, work: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """Return `work` of every item, in the order of `items`; some run at a time, reported as one task. Raise
        InputError with every finding; after `MAX_FINDINGS` of them the rest is not tried."""
        self.reporter.start(task, f"{text}: {len(items)}")
        found: dict[int, T] = {}
        failed: list[Finding] = []
        pool = ThreadPoolExecutor(THREADS)
        try:
            futures = {pool.submit(work, item): place for place, item in enumerate(items)}
            for future in as_completed(futures):
                try:
                    found[futures[future]] = future.result()
                except InputError as error:
                    failed += error.findings
                    if len(failed) >= MAX_FINDINGS:
                        break
                self.reporter.note(task, f"{len(found)} of {len(items)}")
                self.reporter.advance(task, self.wheels.tally.received)
        finally:
            pool.shutdown(cancel_futures=True)
            self.reporter.finish(task)
        if failed:
            raise InputError.of(failed)
        return [found[place] for place in range(len(items))]


def read_derived(path: Path) -> YamlTree:
    """Return a derived file as a plain tree, in which every scalar is text; empty when it is missing. Raise SpecError
    for a file that is not readable YAML."""
    if not path.exists():
        return {}
    findings: list[Finding] = []
    tree = yaml_nodes.node_texts(yaml_parser.load(path, findings))
    if findings:
        raise SpecError.of(findings)
    return dict(tree)


def render_derived(derived: Derived, seen: Mapping[str, str]) -> str:
    """Return the file's text. `seen`: fact id → date."""
    lines = [HEADER.rstrip("\n"), "schema: 1"]
    for title, table in (("components", derived.components), ("questions", derived.questions)):
        if table:
            lines.append(f"{title}:")
            lines += [f"  {name}: {render_flow(entry)}" for name, entry in sorted(table.items())]
    if derived.facts:
        lines.append("facts:")
    for fact in sorted(derived.facts, key=lambda fact: fact.id):
        first, *others = (f"{key}: {render_flow(value)}" for key, value in fact.node(seen[fact.id]).items())
        lines += [f"- {first}", *(f"  {line}" for line in others), "  rows:"]
        lines += [f"  - {render_flow(row.node())}" for row in fact.rows]
    return "\n".join(lines) + "\n"


def render_flow(node: FlowNode) -> str:
    """Return a value in YAML's flow style; a text that another reader could take for something else is quoted."""
    if isinstance(node, bool):
        return "true" if node else "false"
    if isinstance(node, int):
        return str(node)
    if isinstance(node, str):
        plain = PLAIN.fullmatch(node) and node.lower() not in RESERVED
        return node if plain else json.dumps(node, ensure_ascii=False)
    if isinstance(node, Mapping):
        return "{" + ", ".join(f"{key}: {render_flow(value)}" for key, value in node.items()) + "}"
    return "[" + ", ".join(map(render_flow, node)) + "]"
