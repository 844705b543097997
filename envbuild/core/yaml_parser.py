"""The plain part of YAML, read into nodes.

That is: mappings with text keys, lists, scalars. Anchors, aliases and tags are refused, because a file of a few hundred
bytes can expand to gigabytes through aliases and a tag can name a Python class. Nodes are built from libyaml's event
stream instead of its composer, which recurses in C and so can be made to overflow the stack."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from envbuild.core.errors import Finding, SpecError
from envbuild.core.text import describe_hidden, first_hidden
from envbuild.core.yaml_nodes import Node, Scalar, Sequence, Table, describe, relative_path
from envbuild.core.yaml_text import read_yaml_text, syntax_error

MAX_DEPTH = 50

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# YAML 1.1 and 1.2 are covered, so that no other program reads a number or a truth value where envbuild reads
# text. The pattern is compiled at its first use (`re` keeps it).
NUMBER = (
    r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?"
    r"|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|\.(inf|Inf|INF))"
    r"|\.(nan|NaN|NAN)"
)
TRUTH = {"yes", "no", "true", "false", "on", "off"}
NULL = {"", "~", "null", "Null", "NULL"}


class _Open(NamedTuple):
    """A collection whose end has not been seen: its items so far (keys and values in turn for a mapping)."""

    mapping: bool
    where: str
    items: list[Node]


def load(path: Path, findings: list[Finding]) -> Table:
    """Read one file whose top is a mapping.

    Mistakes that leave the rest readable (a duplicate key) are appended to `findings`; those that do not raise
    SpecError."""
    name = relative_path(path)
    return parse(read_yaml_text(path, name), name, findings)


def parse(text: str, name: str, findings: list[Finding]) -> Table:
    """Return the top mapping of `text`; `name` is the file in messages. Raises SpecError."""
    try:
        top = _nodes(text, name, findings)
    except yaml.YAMLError as error:
        raise syntax_error(error, text, name) from None
    if isinstance(top, Scalar) and top.kind == "null":
        raise SpecError("the file is empty", "it begins with schema: 1", name)
    if not isinstance(top, Table):
        raise SpecError(f"the file holds {describe(top)}, not keys with values", "it begins with schema: 1", top.where)
    return Table(top.entries, top.where, text)


def _nodes(text: str, name: str, findings: list[Finding]) -> Node:
    """Return the root node, built without recursion from parser events."""
    stack: list[_Open] = []
    root: Node = Scalar("", "null", f"{name}:1:1")
    documents = 0
    event: Any  # marks are optional in the stubs; parser events always have them
    for event in yaml.parse(text, Loader=LOADER):
        where = f"{name}:{event.start_mark.line + 1}:{event.start_mark.column + 1}"
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise SpecError("a second document (---) in one file", "keep one document in a file", where)
        elif isinstance(event, yaml.NodeEvent):
            _refuse_indirection(event, where)
        if isinstance(event, yaml.CollectionStartEvent):
            if len(stack) >= MAX_DEPTH:
                raise SpecError(f"nested more than {MAX_DEPTH} levels deep", where=where)
            stack.append(_Open(isinstance(event, yaml.MappingStartEvent), where, []))
            continue
        if isinstance(event, yaml.ScalarEvent):
            quoted = event.style in ("'", '"', "|", ">")
            node: Node = Scalar(event.value, "text" if quoted else _kind(event.value), where)
        elif isinstance(event, yaml.CollectionEndEvent):
            node = _close(stack.pop(), findings)
        else:
            continue
        if stack:
            stack[-1].items.append(node)
        else:
            root = node
    return root


def _refuse_indirection(event: yaml.NodeEvent, where: str) -> None:
    hint = "write the value out; anchors and aliases are not read here"
    if isinstance(event, yaml.AliasEvent):
        raise SpecError(f"an alias (*{event.anchor})", hint, where)
    if event.anchor is not None:
        raise SpecError(f"an anchor (&{event.anchor})", hint, where)
    if (tag := getattr(event, "tag", None)) is not None:
        raise SpecError(f"a tag ({tag.replace('tag:yaml.org,2002:', '!!')})", "remove it; put text into quotes", where)


def _kind(value: str) -> str:
    if value in NULL:
        return "null"
    if value.lower() in TRUTH:
        return "truth"
    if value.isascii() and value.isdigit():
        return "number"
    return "number" if value[0] in "+-.0123456789" and re.fullmatch(NUMBER, value) else "text"


def _close(opened: _Open, findings: list[Finding]) -> Node:
    if not opened.mapping:
        return Sequence(tuple(opened.items), opened.where)
    entries: dict[str, tuple[Scalar, Node]] = {}
    for key, value in zip(opened.items[::2], opened.items[1::2], strict=True):
        if not isinstance(key, Scalar):
            findings.append(Finding(f"a key must be text, not {describe(key)}", key.where))
        elif bad := first_hidden(key.value):
            findings.append(Finding(f"a key holds {describe_hidden(bad)}", key.where, "remove it"))
        elif key.value in entries:
            first = entries[key.value][0].where.split(":")[-2]
            findings.append(
                Finding(f"duplicate key '{key.value}'", key.where, f"it is already in line {first}; keep one")
            )
        else:
            entries[key.value] = (key, value)
    return Table(entries, opened.where)
