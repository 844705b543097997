"""The sections about use: the version matrix, bandwidth, lines that start the image, versions."""

from __future__ import annotations

from envbuild.core.text import counted
from envbuild.report.html.curve import curve, size_text
from envbuild.report.html.elements import EMPTY, Html, Limits, cut, element, join, lines
from envbuild.report.html.overview import matrix_status
from envbuild.report.html.tables import folded, mark, missing, section, table
from envbuild.report.model import BANDWIDTH, LAUNCH, MATRIX, Cited, MatrixPart, Report
from envbuild.report.series import Series

DRAWN = 8  # curves; the others are rows of a table
# Kinds of what the answer cites → heading; facts are folded, the others are what a user has to know or to do.
HEADINGS = {
    "conflict": "Conflicts",
    "unknown": "Combinations that no fact covers",
    "condition": "Conditions to ensure",
    "dispute": "Disputed facts",
    "warning": "Warnings",
    "need": "Needs on the host",
}


def matrix(report: Report, limits: Limits) -> Html:
    """Return the verdict of the version matrix, its reasons with their sources, and the waivers."""
    title = "Version matrix"
    found = report.matrix
    if found is None:
        return section("matrix", title, missing(report.missing.get(MATRIX, "")))
    verdict = element(
        "p", mark(matrix_status(found.verdict), found.verdict), ": ", cut(found.title, 2 * limits.width), class_="title"
    )
    groups = []
    for kind, heading in HEADINGS.items():
        if rows := [row for row in found.cited if row.kind == kind]:
            groups.append(cited_table(heading, rows, limits))
    facts = [row for row in found.cited if row.kind == "fact"]
    if facts:
        groups.append(folded(f"Statements that allow this combination: {len(facts)}", fact_table(facts, limits)))
    return section("matrix", title, verdict, waivers(found, limits), join(groups), lead=matrix_lead(found))


def matrix_lead(found: MatrixPart) -> str:
    """Return how many facts the answer rests on, and how old they are."""
    age = f"; the oldest was checked on {found.oldest}" if found.oldest else ""
    return f"The answer rests on {counted(found.facts, 'fact')}{age}."


def waivers(found: MatrixPart, limits: Limits) -> Html:
    """Return the facts that the spec sets aside, with the reasons of its author."""
    if not found.waived:
        return element("p", "No fact is waived.")
    return table("Waived facts", ("fact", "reason of the spec"), [tuple(row) for row in found.waived], limits)


def cited_table(heading: str, rows: list[Cited], limits: Limits) -> Html:
    """Return what the answer cites, in full."""
    wide = Limits(limits.rows, 2 * limits.width)
    return table(heading, ("fact", "statement", "source", "checked"), [tuple_of(row) for row in rows], wide, short=[3])


def fact_table(rows: list[Cited], limits: Limits) -> Html:
    """Return facts; those of a lock have names alone."""
    if not any(row.source for row in rows):
        return element("p", cut(", ".join(row.fact for row in rows), limits.rows * limits.width // 4), class_="facts")
    return cited_table("Facts", rows, Limits(limits.rows, limits.width // 2))


def tuple_of(row: Cited) -> tuple[str, str, str, str]:
    """Return the cells of a cited fact."""
    return row.fact or "recipe", row.text, row.source, row.seen


def bandwidth(report: Report, limits: Limits) -> Html:
    """Return the first measured series with their floors, and the others as a table; without one the reason; the
    floors of the target."""
    parts = [series_part(one, limits) for one in report.series[:DRAWN]]
    if others := [(one.title, *largest(one)) for one in report.series[DRAWN:] if one.points]:
        head = ("curve", "largest size", "bandwidth")
        found = table("Other curves", head, others, limits, numbers=[1, 2], quiet=True)
        parts.append(folded(f"{counted(len(others), 'other curve')}, each at its largest size", found))
    if not parts:
        parts.append(missing(report.missing.get(BANDWIDTH, "")))
    if report.floors:
        rows = [(one.name, f"{one.value:g} {one.unit}", one.because) for one in report.floors]
        head = ("measurement", "at least", "source of the figure")
        parts.append(table("Floors that the target names", head, rows, limits, numbers=[1]))
    return section("bandwidth", "Bandwidth", join(parts))


def series_part(series: Series, limits: Limits) -> Html:
    """Return one series: drawing, the comparison of its largest size with the floor, and its figures."""
    if not series.points:
        return missing(f"not run: {series.title} has no measured point")
    curved = len(series.points) > 1
    parts = [element("h3", cut(series.title, limits.width)), curve(series) if curved else EMPTY]
    _, value = series.points[-1]
    figure = " at ".join(filter(None, reversed(largest(series))))
    if series.floor:
        status = "pass" if value >= series.floor.value else "fail"
        words = f"{figure}, floor {series.floor.value:g} {series.unit}"
        parts.append(element("p", mark(status, words), ": ", cut(series.floor.because, 2 * limits.width)))
    else:
        parts.append(element("p", figure, "; no floor is compared with it"))
    if series.source:
        parts.append(element("p", "measured: ", cut(series.source, 2 * limits.width), class_="why"))
    rows = [(size_text(size), f"{value:g}") for size, value in series.points]
    if not curved:
        return join(parts)
    figures = table(series.title, ("size", series.unit), rows, limits, numbers=[1])
    return join([*parts, folded(f"Table of {counted(len(rows), 'point')}", figures)])


def largest(series: Series) -> tuple[str, str]:
    """Return the largest size of a series, empty for a measurement without one, and its bandwidth."""
    size, value = series.points[-1]
    return size_text(size) if size else "", f"{value:g} {series.unit}"


def launch(report: Report, limits: Limits) -> Html:
    """Return the lines that start the image as a job."""
    parts = []
    for line in report.start:
        parts.append(element("h3", line.form))
        if line.text:
            code = element("pre", element("code", lines(line.text)), tabindex="0")
            typed = element("p", "written by: ", element("code", cut(line.command, limits.width)), class_="why")
            first = element("p", cut(line.reason, 3 * limits.width), class_="why") if line.reason else EMPTY
            parts += [first, code, typed]
        else:
            parts.append(missing(line.reason))
    found = join(parts) if parts else missing(report.missing.get(LAUNCH, ""))
    lead = "Composed from image, target and site; envbuild launch --explain states the reason of each variable."
    return section("launch", "Start it", found, lead=lead if parts else "")


def versions(report: Report, limits: Limits) -> Html:
    """Return what identifies the image: target, lock, file, and the tools that made it."""
    rows = [(name, value) for name, value in report.facts if value]
    found = table("Identity", ("what", "value"), rows, limits, codes=[1], quiet=True) if rows else EMPTY
    return section("versions", "Versions and digests", found)
