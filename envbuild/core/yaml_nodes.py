"""Content of YAML files written by users, as nodes that know their place.

A scalar keeps the text as it is written, so ``3.10`` remains ``3.10``; `kind` is the type that a YAML 1.1 or 1.2
reader would give it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple


class Scalar(NamedTuple):
    """A value: `value` as written (quotes removed), `kind` one of text, number, truth, null; `where` is
    ``path:line:column``."""

    value: str
    kind: str
    where: str


class Sequence(NamedTuple):
    """A list."""

    items: tuple[Node, ...]
    where: str


class Table(NamedTuple):
    """A mapping, its keys unique and in the order of the file. `entries`: key → (the key's own node, the value). The
    top of a file also has its `text`."""

    entries: dict[str, tuple[Scalar, Node]]
    where: str
    text: str = ""


Node = Scalar | Sequence | Table


def node_texts(node: Node) -> Any:
    """Return a node as a plain tree, in which every scalar is text."""
    if isinstance(node, Table):
        return {key: node_texts(value) for key, (_, value) in node.entries.items()}
    return node.value if isinstance(node, Scalar) else [node_texts(item) for item in node.items]


def relative_path(path: Path) -> str:
    """Return a path for messages: relative if it is below the current folder."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def describe(node: Node) -> str:
    """Return the kind of a node for messages: "a number", "a list", …"""
    if isinstance(node, Scalar):
        return {"text": "text", "number": "a number", "truth": "true or false", "null": "nothing"}[node.kind]
    return "a list" if isinstance(node, Sequence) else "keys with values"
