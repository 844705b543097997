"""A report whose texts have a largest length, for an output that has a largest size."""

from __future__ import annotations

import dataclasses
from typing import Any

from envbuild.core.text import printable
from envbuild.report.model import Report, StartLine

START = 10  # times the length of other texts that the text of a start line may have: it has many lines


def shorten_texts(report: Report, width: int) -> Report:
    """Return the report with at most `width` characters of each text, printable on one line."""
    found: Report = _shorten(report, width)
    return found


def cut(text: str, width: int) -> str:
    """Return a text, printable on one line, with at most `width` characters of it."""
    found = printable(text[: width + 1])
    return found if len(found) <= width else f"{found[: width - 1]}…"


def _shorten(value: Any, width: int) -> Any:
    """Return a value of a report with shorter texts."""
    if isinstance(value, str):
        return cut(value, width)
    if isinstance(value, StartLine):
        text = "\n".join(cut(line, START * width) for line in value.text.split("\n"))
        return StartLine(*(cut(part, width) for part in (value.form, "", value.command, value.reason)))._replace(
            text=text[: START * width]
        )
    if isinstance(value, tuple):
        items = [_shorten(item, width) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **{name: _shorten(item, width) for name, item in fields.items()})
    if isinstance(value, dict):
        return {key: _shorten(item, width) for key, item in value.items()}
    return value


def volume(value: Any, rows: int, width: int) -> int:
    """Return about how many characters of a report an output has to write that cuts lists and texts."""
    if isinstance(value, str):
        return min(len(value), width)
    if isinstance(value, tuple):
        items = value if hasattr(value, "_fields") else value[:rows]
        return sum(volume(item, rows, width) for item in items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sum(volume(getattr(value, field.name), rows, width) for field in dataclasses.fields(value))
    return 0
