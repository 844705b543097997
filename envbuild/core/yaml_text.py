"""Text of YAML files: read with limits, and the cause where it is not YAML."""

from __future__ import annotations

from pathlib import Path

import yaml

from envbuild.core.errors import SpecError
from envbuild.core.shell import shell_word
from envbuild.core.text import describe_hidden, first_hidden
from envbuild.core.written_file import read_written


def read_yaml_text(path: Path, name: str) -> str:
    """Return the text of a file; `name` is the file in messages. Raises SpecError."""
    return _decode(read_written(path, name), name)


def _decode(data: bytes, name: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        hint = f"if it is Latin-1: iconv -f LATIN1 -t UTF-8 {shell_word(name)}"
        raise SpecError("the file is not UTF-8 text", hint, f"{name}:{line}:{column}") from None
    if bad := first_hidden(text, "\t\n\r"):
        raise SpecError(describe_hidden(bad), "remove it", _place(text, text.index(bad), name))
    return text


def _place(text: str, index: int, name: str) -> str:
    line = text.count("\n", 0, index) + 1
    return f"{name}:{line}:{index - (text.rfind(chr(10), 0, index) + 1) + 1}"


def syntax_error(error: yaml.YAMLError, text: str, name: str) -> SpecError:
    """Return libyaml's error with its cause: a tab is by far the most frequent one."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return SpecError(f"not YAML: {error}", where=name)
    lines = text.split("\n")
    for number in (mark.line, mark.line + 1):  # some complaints point at the line before the tab
        line = lines[number] if number < len(lines) else ""
        indent = line[: len(line) - len(line.lstrip())]
        if "\t" in indent:
            return SpecError(
                "a tab in the indentation", "indent with spaces", f"{name}:{number + 1}:{indent.index(chr(9)) + 1}"
            )
    where = f"{name}:{mark.line + 1}:{mark.column + 1}"
    problem = getattr(error, "problem", None) or "cannot be read"
    context = getattr(error, "context", None)
    if problem == "found unexpected end of stream" and context == "while scanning a quoted scalar":
        opened = getattr(error, "context_mark", None) or mark
        where = f"{name}:{opened.line + 1}:{opened.column + 1}"
        return SpecError("a quote that is never closed", "close it on the same line", where)
    if problem.startswith("mapping values are not allowed"):
        return SpecError("not YAML: a ':' inside an unquoted value", "put the value into quotes", where)
    return SpecError(f"not YAML: {problem}{f' ({context})' if context else ''}", where=where)
