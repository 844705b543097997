"""A small typed reader over the nodes of `envbuild.core.yaml_nodes`: it collects every mistake of a file before it
raises.

Each method takes a node and its key, and returns the value, or None after recording a finding. `finish`
raises them all at once as one SpecError. Annotations are Python types, so that the fields of a dataclass are the schema
of its YAML."""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from envbuild.core.errors import Finding, SpecError
from envbuild.core.text import LINE_ENDS, describe_hidden, first_hidden, human_list, printable, without_logins
from envbuild.core.yaml_nodes import Node, Scalar, Sequence, Table, describe

# Patterns are compiled at their first use (`re` keeps them), because most runs need few of them.
WHITE = f"\t{LINE_ENDS}"
INTEGER = r"[-+]?[0-9]{1,18}"
REAL = r"[-+]?[0-9]{1,18}(\.[0-9]{1,18})?"

MAX_FINDINGS = 100
NAMED = 30  # choices that a hint lists
SIMILAR = 8  # names that are compared by typing mistakes

Guard = Callable[[str], str]  # text → what is wrong with it, or ""


def no_guard(text: str) -> str:
    return ""


class Reader:
    """Reads one file and those that it extends. `findings` holds the mistakes so far, in the order they were seen."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def load(self, path: Path) -> Table:
        from envbuild.core import yaml_parser  # a question to a cached version matrix reads no YAML

        return yaml_parser.load(path, self.findings)

    def wrong(self, where: str, message: str, hint: str = "") -> None:
        """Record a mistake. Raise all of them at a limit: such a file is probably of another kind."""
        self.findings.append(Finding(message, where, hint))
        if len(self.findings) > MAX_FINDINGS:
            self.finish()

    def finish(self) -> None:
        """Raise SpecError with every finding, by place in the file, if there is one."""
        found = sorted(dict.fromkeys(self.findings), key=_place)
        if len(found) > MAX_FINDINGS:
            more = Finding(f"and more mistakes after these {MAX_FINDINGS}", found[MAX_FINDINGS].where)
            found = [*found[:MAX_FINDINGS], more]
        if found:
            raise SpecError.of(found)

    def schema(self, top: Table, what: str, known: int = 1) -> None:
        """Check the format version. Raise SpecError for an unknown one, because the rest cannot be interpreted."""
        from envbuild import __version__

        if "schema" not in top.entries:
            self.wrong(top.where, f"the {what} has no format version", f"begin with schema: {known}")
            return
        node = top.entries["schema"][1]
        if not isinstance(node, Scalar) or node.kind != "number":
            self.wrong(node.where, f"'schema' must be a number, not {describe(node)}", f"write schema: {known}")
        elif node.value != str(known):
            newer = re.fullmatch(INTEGER, node.value) and int(node.value) > known
            message = f"schema {short(node.value)} is not read by envbuild {__version__}, which reads schema {known}"
            hint = "a newer envbuild reads it: pip install --upgrade envbuild" if newer else f"write schema: {known}"
            raise SpecError(message, hint, node.where)

    def entries(self, node: Node, key: str) -> dict[str, tuple[Scalar, Node]]:
        """Return keys with values; null reads as none."""
        if isinstance(node, Table):
            return node.entries
        if not (isinstance(node, Scalar) and node.kind == "null"):
            listed = node.items if isinstance(node, Sequence) and key == "layers" else ()
            first = next((short(item.value) for item in listed if isinstance(item, Scalar)), "")
            hint = f"write '{first}: {{}}' for '- {first}', each on a line of its own" if first else ""
            self.wrong(node.where, f"'{key}' must be keys with values, not {describe(node)}", hint)
        return {}

    def table(self, node: Node, known: Iterable[str], key: str, what: str) -> dict[str, Node]:
        """Return keys with values, each key one of `known`; `what` names their owner ("layer 'ucx'")."""
        keys, entries = tuple(known), self.entries(node, key)
        for name, (place, _) in entries.items():
            if name not in keys:
                self.wrong(
                    place.where, f"unknown key '{short(name)}' for {what}", did_you_mean(name, keys, "its keys are")
                )
        return {name: value for name, (_, value) in entries.items() if name in keys}

    def items(self, node: Node, key: str) -> tuple[Node, ...]:
        """Return a list; null reads as an empty one."""
        if isinstance(node, Sequence):
            return node.items
        if not (isinstance(node, Scalar) and node.kind == "null"):
            hint = f"write {key}: [{short(node.value)}]" if isinstance(node, Scalar) and node.kind == "text" else ""
            self.wrong(node.where, f"'{key}' must be a list, not {describe(node)}", hint)
        return ()

    def text(self, node: Node, key: str, guard: Guard = no_guard, *, folded: bool = False) -> str | None:
        """Return one line of text; with `folded`, line ends count as blanks."""
        if not isinstance(node, Scalar):
            return self._none(node, f"'{key}' must be text, not {describe(node)}")
        if node.kind == "null":
            return self._none(node, f"'{key}' has no value", f"write {key}: … or leave the line out")
        if node.kind != "text":
            return self._none(
                node, f"'{key}' must be text, not {describe(node)}", f'write {key}: "{node.value}" with quotes'
            )
        value = " ".join(node.value.split()) if folded else node.value
        if bad := first_hidden(value):
            what = "a line end" if bad in LINE_ENDS else describe_hidden(bad)
            return self._none(node, f"'{key}' holds {what}", "keep it to one line of plain text")
        if reason := guard(value):
            return self._none(node, f"'{key}' {reason}")
        return value

    def texts(self, node: Node, key: str, guard: Guard = no_guard) -> tuple[str, ...]:
        values = (self.text(item, key, guard) for item in self.items(node, key))
        return tuple(value for value in values if value is not None)

    def text_map(self, node: Node, key: str, guard: Guard = no_guard) -> dict[str, str]:
        read = {name: self.text(value, name, guard) for name, (_, value) in self.entries(node, key).items()}
        return {name: value for name, value in read.items() if value is not None}

    def choice(self, node: Node, key: str, choices: Iterable[str]) -> str | None:
        """Return a text that is one of `choices`."""
        allowed = tuple(choices)
        value = self.text(node, key)
        if value is None or value in allowed:
            return value
        return self._none(node, f"'{key}' cannot be '{short(value)}'", one_of(value, allowed, "it is one of"))

    def value(self, node: Node, annotation: Any, key: str, guard: Guard = no_guard) -> Any:
        """Return a value of the type `annotation`.

        annotation: str, int, float, bool, tuple[str, ...], Mapping[str, str], Literal of texts, an enum of texts, or
        one of those or None. Raises TypeError for others (a mistake of the recipe, not of the spec).
        """
        origin, arguments = get_origin(annotation), get_args(annotation)
        if annotation is str:
            return self.text(node, key, guard)
        if annotation is bool:
            return self._scalar(node, key, "true|false", "true or false", lambda text: text == "true")
        if annotation is int:
            return self._scalar(node, key, INTEGER, "a whole number", int)
        if annotation is float:
            return self._scalar(node, key, REAL, "a number", float)
        if origin is Literal:
            return self.choice(node, key, [str(choice) for choice in arguments])
        if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            chosen = self.choice(node, key, [str(member.value) for member in annotation])
            return None if chosen is None else next(member for member in annotation if str(member.value) == chosen)
        if origin is tuple and arguments == (str, Ellipsis):
            return self.texts(node, key, guard)
        if origin in (dict, Mapping) and arguments == (str, str):
            return self.text_map(node, key, guard)
        if isinstance(annotation, types.UnionType) and len(arguments) == 2 and types.NoneType in arguments:
            return self.value(node, next(part for part in arguments if part is not types.NoneType), key, guard)
        raise TypeError(f"the type of '{key}' cannot be read from YAML: {annotation}")

    def _scalar(self, node: Node, key: str, allowed: str, what: str, convert: Callable[[str], Any]) -> Any:
        if isinstance(node, Scalar) and node.kind in ("number", "truth"):
            if re.fullmatch(allowed, node.value):
                return convert(node.value)
            return self._none(node, f"'{key}' must be {what}, not {short(node.value)}")
        quoted = isinstance(node, Scalar) and node.kind == "text" and re.fullmatch(allowed, node.value)
        hint = "write it without quotes" if quoted else ""
        return self._none(node, f"'{key}' must be {what}, not {describe(node)}", hint)

    def _none(self, node: Node, message: str, hint: str = "") -> str | None:
        self.wrong(node.where, message, hint)
        return None


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint: the closest of `known`, or the first of them after the words `otherwise`."""
    choices = sorted(known)
    return closest(name, choices) or _listed(choices, otherwise)


def closest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest of `known`; empty where none is close."""
    close = nearest(name, known)
    return f"did you mean '{close}'?" if close else ""


def one_of(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint for a word of a short closed list: the closest, then all of `known` after the words `otherwise`.

    A user who misspelt one value often does not know the others.
    """
    choices = list(known)
    return " ".join(filter(None, (closest(name, choices), _listed(choices, otherwise))))


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return the one of `known` that takes the fewest typing mistakes to become `name`, of those similar to it; "" if
    none reaches `likeness` (difflib's, from 0 to 1)."""
    import difflib

    typed = name.lower()[:100]
    close = difflib.get_close_matches(typed, list(known), n=SIMILAR, cutoff=likeness)
    return min(close, key=lambda one: typing_distance(typed, one), default="")


def typing_distance(one: str, other: str) -> int:
    """Return how many characters are missing, added, wrong or swapped with the next one."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, char in enumerate(one, 1):
        older, before, row = before, row, [at]
        for to, wanted in enumerate(other, 1):
            row.append(min(row[-1] + 1, before[to] + 1, before[to - 1] + (char != wanted)))
            if older and to > 1 and char == other[to - 2] and wanted == one[at - 2]:
                row[-1] = min(row[-1], older[to - 2] + 1)
    return row[-1]


def _listed(choices: list[str], otherwise: str) -> str:
    named = human_list((choice or "''" for choice in choices), NAMED)
    return f"{otherwise}: {named}" if choices else ""


def short(text: str) -> str:
    """Return a value for a message: on one line, cut to a line's length, without the login of an address in it."""
    line = "".join(" " if sign in WHITE else printable(sign) for sign in without_logins(text)[:61])
    return line if len(line) <= 60 else line[:57] + "…"


def _place(finding: Finding) -> tuple[str, int, int]:
    path, *rest = finding.where.rsplit(":", 2)
    numbers = [int(part) for part in rest if part.isdigit()]
    return (path, numbers[0], numbers[1]) if len(numbers) == 2 else (finding.where, 0, 0)
