"""The prose of a file: its comments, docstrings, messages and names, each with its line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

MESSAGE = re.compile(r"(Error|Finding|Refusal|Option|Argument|Typer|command|info|warn|debug)$")
KEEP = "# prose: keep"
STRING_OR_COMMENT = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*""", re.DOTALL
)


@dataclass(frozen=True)
class Text:
    """A piece of prose and the line where it starts; `lines` is the source that it comes from, to place a match."""

    value: str
    line: int
    lines: tuple[str, ...] = ()


def without_code(text: str) -> str:
    """Blank fenced blocks, text between backticks, link targets and HTML comments; every line stays where it is."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])  # noqa: E731
    for pattern in (r"^( *)(```|~~~).*?^ *\2", r"``.+?``", r"`[^`]+`", r"\]\([^)]*\)", r"<!--.*?-->", r"https?://\S+"):
        text = re.sub(pattern, blank, text, flags=re.DOTALL | re.MULTILINE)
    return text


def comments(lines: list[str]) -> Iterator[Text]:
    """Yield the comments (one per line, or ""); consecutive ones as one, so that phrases over two lines are found."""
    block: list[str] = []
    last = 0
    for number, line in enumerate(lines, 1):
        if line and block and number == last + 1:
            block.append(line)
        elif line:
            if block:
                yield Text(without_code("\n".join(block)), last - len(block) + 1)
            block = [line]
        last = number if line else last
    if block:
        yield Text(without_code("\n".join(block)), last - len(block) + 1)


def comment_lines(source: str) -> list[str]:
    """Return the comment of each line, or an empty string. Only what is no string can be one; `tokenize`, which finds
    the same, takes twenty times as long."""
    lines = [""] * (source.count("\n") + 2)
    number = at = 0
    for match in STRING_OR_COMMENT.finditer(source) if "#" in source else ():
        if match[0].startswith("#") and not match[0].startswith(("#!", KEEP)):
            number += source.count("\n", at, match.start())
            at = match.start()
            lines[number] = match[0][1:]
    return lines


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node, without those that say whether a name is read or written."""
    for name in node._fields:  # millions of times: only what may be a node is looked at
        value = getattr(node, name, None)
        if type(value) is list:
            yield from (one for one in value if isinstance(one, ast.AST))
        elif isinstance(value, ast.AST) and name != "ctx":
            yield value


def docstrings(nodes: list[ast.AST]) -> Iterator[tuple[ast.AST, ast.Constant]]:
    """Yield each definition that has a docstring, with it."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            match node.body[0]:
                case ast.Expr(value=ast.Constant(value=str()) as text):
                    yield node, text


def strings(node: ast.AST, lines: list[str], only_messages: bool, inside: bool = False) -> Iterator[Text]:
    """Yield the string literals that a user may read: no patterns, no operands of comparisons, no docstrings."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called.startswith("re."):
            return
        inside = inside or bool(MESSAGE.search(called))
    inside = inside or isinstance(node, ast.Raise)
    value = ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        value = node.value
    if isinstance(node, ast.JoinedStr):
        value = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if value:
        first, last = node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
        kept = any(KEEP in line for line in lines[max(first - 2, 0) : last])
        if " " in value.strip() and (inside or not only_messages) and not kept:
            yield Text(value, first, tuple(lines[first - 1 : last]))
    for child in children(node):
        if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
            yield from strings(child, lines, only_messages, inside)


def identifiers(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield the names that a file defines."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, node.lineno


def yaml_scalars(node: yaml.Node | None, key: str = "") -> Iterator[tuple[str, yaml.ScalarNode]]:
    """Yield (key, node) of every scalar: items of a list have the key of the list, keys themselves have none."""
    if isinstance(node, yaml.ScalarNode):
        yield key, node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from yaml_scalars(item, key)
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield "", name
            yield from yaml_scalars(value, name.value)


def yaml_comment_lines(lines: list[str], scalars: list[yaml.ScalarNode]) -> list[str]:
    """Return the comment of each line, or an empty string. A `#` within a scalar begins none."""
    rest = list(lines)
    for node in scalars:
        first, last = node.start_mark, node.end_mark
        for number in range(first.line, min(last.line + 1, len(rest))):
            start = first.column if number == first.line else 0
            end = last.column if number == last.line else len(rest[number])
            rest[number] = rest[number][:start] + "x" * (end - start) + rest[number][end:]
    found = (re.search(r"(?:^|\s)#(.*)", line) for line in rest)
    return [match[1] if match and not match[0].lstrip().startswith(KEEP) else "" for match in found]


def quoted_names(text: str, line: int) -> Iterator[tuple[str, int]]:
    """Yield the identifiers in backticks of a text that starts at `line`."""
    for match in re.finditer(r"(?<!`)`([A-Za-z_]\w*)(?:\(\))?`(?!`)", text):
        yield match[1], text.count("\n", 0, match.start()) + line
