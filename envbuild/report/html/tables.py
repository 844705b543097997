"""Tables, sections and foldable parts of the page, with what a reader without a mouse or without sight needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envbuild.core.text import counted
from envbuild.report.html.elements import EMPTY, Child, Html, Limits, cut, element, join

MARKS = {
    "pass": ("good", "✓", "passed"),
    "fail": ("bad", "✗", "failed"),
    "not-run": ("open", "–", "not run"),
    "caution": ("open", "!", "with conditions"),
}


def table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[Child]],
    limits: Limits,
    *,
    numbers: Iterable[int] = (),
    codes: Iterable[int] = (),
    short: Iterable[int] = (),
    kind: str = "",
    quiet: bool = False,
) -> Html:
    """Return a table whose first column names the row. numbers, codes, short: columns with figures, with texts of
    programs, and with texts that are not wrapped. kind: a class of the table. quiet: a heading is above it, so that
    its caption is for screen readers. What exceeds the limits is left out, and the number of these rows is stated."""
    kinds = {**dict.fromkeys(codes, "code"), **dict.fromkeys(short, "short"), **dict.fromkeys(numbers, "number")}
    body = []
    for row in rows[: limits.rows]:
        cells = [
            element("td" if at else "th", cut(cell, limits.width) if cell is not None else "", class_=kinds.get(at),
                    scope=None if at else "row")
            for at, cell in enumerate(row)
        ]  # fmt: skip
        body.append(element("tr", *cells))
    titles = [element("th", title, scope="col", class_=kinds.get(at)) for at, title in enumerate(head)]
    found = element(
        "table",
        element("caption", element("span", caption, class_="quiet") if quiet else caption),
        element("thead", element("tr", *titles)),
        element("tbody", *body),
        class_=kind or None,
    )
    more = len(rows) - limits.rows
    rest = element("p", f"and {counted(more, 'row')} more, which this page has no place for", class_="more")
    region = element("div", found, class_="scroll", tabindex="0", role="group", aria_label=caption)
    return join([region, rest if more > 0 else None])


def section(anchor: str, title: str, *parts: Child, lead: str = "") -> Html:
    """Return a section with its heading, and a sentence below it."""
    heading = element("h2", title, id=anchor)
    first = element("p", lead, class_="lead") if lead else EMPTY
    return element("section", heading, first, *parts, aria_labelledby=anchor)


def missing(reason: str) -> Html:
    """Return the reason why a section has no content."""
    return element("p", mark("not-run", reason or "not known"), class_="missing")


def folded(title: str, *parts: Child, opened: bool = False) -> Html:
    """Return a part that opens by mouse, by Enter and by Space; it is printed open."""
    return element("details", element("summary", title), *parts, open=opened)


def mark(status: str, words: str = "") -> Html:
    """Return a state as a sign and in words: colour alone states nothing."""
    kind, sign, usual = MARKS[status]
    return element("span", element("span", sign, aria_hidden="true"), " ", words or usual, class_=f"mark {kind}")
