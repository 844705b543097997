"""Fact files: ``envbuild/matrix/data/*.yaml``, those below ``derived/`` there, and ``facts/*.yaml`` of a project.

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
      because: "torch=={torch}'s wheel contains no code for {sm}"
      source: {type: measured, where: FILE, seen: "2026-11-21", how: architecture string read}
      rows:
      - {when: {torch: "==2.8.0", arch: amd64}, then: {sm: {cubins: ["70", "75"]}}}

The names of the files and the order of their entries do not matter. A fact of a later folder replaces the fact of
the same id of an earlier one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import pairwise
from pathlib import Path

from envbuild.core import yaml_nodes
from envbuild.core.errors import SpecError
from envbuild.core.toposort import sort_topologically
from envbuild.core.yaml_nodes import Node, Scalar, Table
from envbuild.core.yaml_reader import Reader, short
from envbuild.matrix import fact_files, read_fact_file
from envbuild.matrix.facts.components import read_components, read_questions
from envbuild.matrix.facts.fact_reader import NAME, References, read_constraints, read_facts
from envbuild.matrix.facts.model import Component, Fact, Facts
from envbuild.matrix.facts.rule import KEYS as RULE_KEYS
from envbuild.matrix.facts.rule import read_rule

TOP = ("schema", "components", "questions", "facts", *RULE_KEYS)


def load_facts(folders: Sequence[Path]) -> Facts:
    """Return the facts of all fact files below `folders`. Raise SpecError with every mistake of all files."""
    reader = Reader()
    read = _Files()
    for folder in folders:
        _read_folder(reader, folder, read)
    if read.unread:
        reader.finish()
    components = read_components(reader, read.components)
    # A date is written in the time zone of its author: the date line is 14 hours ahead of UTC.
    known = References(reader, components, {}, datetime.now(timezone(timedelta(hours=14))).date())
    questions = known.questions = read_questions(reader, read.questions, components, partial(read_constraints, known))
    facts: dict[str, Fact] = {}
    for layer in read.facts:
        own = read_facts(known, layer)
        facts |= {name: replace(fact, replaces=name in facts) for name, fact in own.items()}
    rule = read_rule(reader, components, read.rule)
    _report_cycles(reader, components, facts)
    reader.finish()
    if not (components and facts):
        names = ", ".join(yaml_nodes.relative_path(folder) for folder in folders)
        raise SpecError("there are no facts", f"they are read from *.yaml in: {names}")
    return Facts(
        {name: components[name] for name in sorted(components, key=lambda name: (components[name].rank, name))},
        {name: questions[name] for name in sorted(questions)},
        {name: facts[name] for name in sorted(facts)},
        rule.independent,
        rule.through,
        rule.narrowed,
        rule.known_to,
        facts_digest(folders),
    )


def facts_digest(folders: Sequence[Path]) -> str:
    """Return the sha256 of the bytes of the files, independent of their names. Raise SpecError for a file that cannot
    be read."""
    whole = hashlib.sha256()
    for folder in folders:
        parts = sorted(hashlib.sha256(read_fact_file(path)).digest() for path in fact_files(folder))
        whole.update(len(parts).to_bytes(4, "big") + b"".join(parts))
    return whole.hexdigest()


@dataclass
class _Files:
    """The nodes of all files: components and questions with the nodes of their names, facts by folder."""

    components: list[tuple[Scalar, Table]] = field(default_factory=list)
    questions: list[tuple[Scalar, Table]] = field(default_factory=list)
    facts: list[list[Node]] = field(default_factory=list)
    rule: list[tuple[str, Node]] = field(default_factory=list)
    unread: bool = False  # a file is left out: what it defines would be reported as unknown elsewhere


def _read_folder(reader: Reader, folder: Path, read: _Files) -> None:
    read.facts.append([])
    for path in fact_files(folder):
        try:
            top = reader.load(path)
            reader.schema(top, "fact file")
        except SpecError as error:  # this file cannot be checked; the others can
            reader.findings.extend(error.findings)
            read.unread = True
            continue
        nodes = reader.table(top, TOP, "fact file", "a fact file")
        if not top.entries.keys() - {"schema"}:
            reader.wrong(top.where, "the file is empty", "write components, questions or facts")
        read.components += _named_tables(reader, nodes, "components")
        read.questions += _named_tables(reader, nodes, "questions")
        read.rule += [(key, nodes[key]) for key in RULE_KEYS if key in nodes]
        read.facts[-1] += reader.items(nodes["facts"], "facts") if "facts" in nodes else ()


def _named_tables(reader: Reader, nodes: Mapping[str, Node], key: str) -> list[tuple[Scalar, Table]]:
    """Return the entries under `key` that have a name and keys."""
    found = []
    for name, (place, node) in reader.entries(nodes[key], key).items() if key in nodes else ():
        if not re.fullmatch(NAME, name):
            reader.wrong(place.where, f"'{short(name)}' cannot be a name", "names are lower-case words with dashes")
        elif isinstance(node, Table):
            found.append((place, node))
        else:
            reader.wrong(node.where, f"'{name}' must be keys with values, not {yaml_nodes.describe(node)}")
    return found


# --- facts


def _report_cycles(reader: Reader, components: Mapping[str, Component], facts: Mapping[str, Fact]) -> None:
    """Report hidden components that follow from each other in a cycle: they would follow from nothing."""
    follows: dict[str, dict[str, str]] = {name: {} for name, component in components.items() if component.hidden}
    for fact in facts.values() if follows else ():
        if fact.kind == "provides":
            for row in fact.rows:
                for name in row.then.keys() & follows.keys():
                    follows[name] |= dict.fromkeys(row.when.keys() & follows.keys(), row.where)
    _, cycle = sort_topologically(follows)
    if cycle:
        steps = ", ".join(f"'{name}' from '{other}'" for name, other in pairwise(cycle))
        hint = "one of them must follow from a component that is not hidden"
        reader.wrong(follows[cycle[0]][cycle[1]], f"hidden components follow from each other: {steps}", hint)
