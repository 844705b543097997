"""Durations as a table whose rows have bars: readable without the drawing, and at any width."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.core.text import counted, duration
from envbuild.report.html.elements import Html, Limits, svg
from envbuild.report.html.tables import table
from envbuild.report.model import Step

MOST = 14  # bars; the others are one row


def seconds_text(seconds: float) -> str:
    """Return a duration: 0.2 s, 48 s, 12 min."""
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def bars(caption: str, steps: Sequence[Step], limits: Limits) -> Html:
    """Return the steps, the longest first, each with its share of the longest one."""
    drawn = steps[: min(MOST, limits.rows)]
    rest = steps[len(drawn) :]
    longest = max((step.seconds for step in steps), default=0.0)
    rows = [(step.name, bar(step.seconds, longest), seconds_text(step.seconds), step.about) for step in drawn]
    if rest:
        total = sum(step.seconds for step in rest)
        rows.append((counted(len(rest), "shorter one"), None, seconds_text(total), ""))  # type: ignore[arg-type]
    about = any(row[3] for row in rows)
    head = ("step", "share of the longest", "time", *(("remark",) if about else ()))
    return table(
        caption,
        head,
        [row if about else row[:3] for row in rows],
        Limits(MOST + 1, limits.width),
        numbers=[2],
        kind="timing",
    )


def bar(value: float, longest: float) -> Html:
    """Return a bar of a row."""
    width = round(100 * value / longest, 1) if longest > 0 else 0.0
    rect = svg("rect", width=max(width, 0.5), height=10, rx=1)
    return svg("svg", rect, viewBox="0 0 100 10", preserveAspectRatio="none", class_="bar", aria_hidden="true")
