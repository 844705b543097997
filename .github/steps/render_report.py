#!/usr/bin/env python3
"""Reports of builds as Markdown: ``render_report.py REPORT.json…``, or ``render_report.py --folder DIR``, which takes
every report.json below DIR.

A report may be of a pull request of any author, and the page that shows it is a page of the project. So files are
small and regular, each value has its type, and each text is a code span of plain ASCII: no link, mention, image or
HTML can be in it.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 20  # of a report
MOST_FILES = 50
MOST_ROWS = 60  # of the table of changes of an image
MOST_TEXT = 100  # characters of a value
MOST_PAGE = 60_000  # characters; a comment of GitHub has at most 65,536
UNITS = ("B", "kB", "MB", "GB", "TB")


class InvalidReportError(ValueError):
    """A report that collect_report.py does not write."""


def code(value: str) -> str:
    """Return a text as a code span: other characters than plain ASCII, and those that end a span or a cell, escaped."""
    plain = "".join(char if " " <= char <= "~" and char not in "`|" else escaped(char) for char in value[:MOST_TEXT])
    more = "..." if len(value) > MOST_TEXT or len(plain) > MOST_TEXT else ""
    return f"`{plain[:MOST_TEXT].strip() or '-'}{more}`"


def escaped(char: str) -> str:
    return f"\\u{{{ord(char):x}}}"


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidReportError(f"not a text: {type(value).__name__}")
    return value


def number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 60:
        raise InvalidReportError("not a size")
    return int(value)


def mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidReportError(f"not an object: {type(value).__name__}")
    return value


def items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidReportError(f"not a list: {type(value).__name__}")
    return value


def size(count: int) -> str:
    """Return a number of bytes for a reader: 34.4 MB."""
    value, unit = float(count), 0
    while value >= 1000 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit else f"{count} B"


def value_text(value: Any) -> str:
    """Return a value of a section: a text, or anything else as JSON."""
    return code(value if isinstance(value, str) else json.dumps(value, sort_keys=True))


def change_rows(changes: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of what changed."""
    for section, change in sorted(changes.items()):
        change = mapping(change)
        for name, value in mapping(change.get("changed", {})).items():
            before, after = [*items(value), "", ""][:2]
            yield f"| {code(section)} | {code(name)} | {value_text(before)} | {value_text(after)} |"
        for name, value in mapping(change.get("added", {})).items():
            yield f"| {code(section)} | {code(name)} | | {value_text(value)} |"
        for name, value in mapping(change.get("removed", {})).items():
            yield f"| {code(section)} | {code(name)} | {value_text(value)} | |"


def facts(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines about the image itself: title and value."""
    before = mapping(report.get("before") or {})
    grown = ""
    if before.get("squashfs_size") is not None:
        change = number(report["size"]) - number(before["squashfs_size"])
        grown = f" ({'-' if change < 0 else '+'}{size(abs(change))})"
    yield "squashfs file", size(number(report["size"])) + grown
    yield "sha256", code(text(report["sha256"]))
    if before:
        yield "published now", f"{code(text(before.get('reference') or ''))} {code(text(before.get('digest') or ''))}"
    units = [f"{len(items(report[key]))} {key}" for key in ("built", "cached", "reused")]
    yield "units", ", ".join(units)
    for tier, verdict in sorted(mapping(report.get("verdicts") or {}).items())[:10]:
        yield f"verify {code(tier)}", code(text(verdict))
    for failure in items(report.get("failures") or [])[:10]:
        yield "failed", code(text(failure))


def render(report: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of one image."""
    name = code(text(report["image"]))
    if report["error"]:
        yield from (f"### {name}: not built", "", code(text(report["error"])), "")
        return
    state = {True: "as published", False: "changed"}.get(report.get("equal"), "built")  # type: ignore[arg-type]
    published = mapping(report.get("before") or {}).get("squashfs_sha256")
    if state == "changed" and published and published == report.get("sha256") and not report.get("changes"):
        state = "the published squashfs file"  # the layers of the registry are not read
    yield from (f"### {name}: {state}", "", "| | |", "|---|---|")
    yield from (f"| {title} | {value} |" for title, value in facts(report))
    yield ""
    if "not_compared" in report:
        yield from (f"Not compared with a published image: {code(text(report['not_compared']))}", "")
    rows = list(change_rows(mapping(report.get("changes", {}))))
    if rows:
        yield from ("| section | name | before | after |", "|---|---|---|---|", *rows[:MOST_ROWS], "")
    if len(rows) > MOST_ROWS:
        yield from (f"And {len(rows) - MOST_ROWS} more changes.", "")


def read(path: Path) -> dict[str, Any]:
    """Return a report; raises InvalidReportError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        raise InvalidReportError("not readable") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise InvalidReportError("not a regular file")
    with os.fdopen(file, "rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise InvalidReportError(f"more than {MOST_BYTES} bytes")
    try:
        return mapping(json.loads(content))
    except (ValueError, RecursionError):
        raise InvalidReportError("not JSON") from None


def section(path: Path) -> str:
    """Return the Markdown of one report, or that it is not valid."""
    try:
        return "\n".join(render(read(path))) + "\n"
    except (InvalidReportError, KeyError, TypeError, RecursionError) as error:
        reason = str(error) if isinstance(error, InvalidReportError) else "a value is missing, or has another type"
        return f"### A report that is not valid: {reason}\n"


def page(paths: Iterable[Path]) -> str:
    """Return the Markdown of all reports, as far as a comment can have it."""
    done = ""
    for count, path in enumerate(paths):
        found = section(path)
        if count == MOST_FILES or len(done) + len(found) > MOST_PAGE:
            return done + "More images are in the summary of the run.\n"
        done += found + "\n"
    return done


def main() -> None:
    words = sys.argv[1:]
    folder = words[0] == "--folder"
    paths = sorted(Path(words[1]).rglob("report.json")) if folder else [Path(word) for word in words]
    sys.stdout.write(page(paths))


if __name__ == "__main__":
    main()
