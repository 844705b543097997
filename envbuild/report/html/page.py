"""The page of a report: one HTML document without scripts, which makes no request and has a largest size."""

from __future__ import annotations

from envbuild.report.html import answers, contents, overview
from envbuild.report.html.elements import Html, Limits, element, join, text
from envbuild.report.html.style import CSS, ICON, content_policy
from envbuild.report.model import Report
from envbuild.report.shorten import shorten_texts, volume

MAX_BYTES = 200_000
# The first that fits is used: rows of a table, characters of a text.
LIMITS = (
    Limits(1000, 400),
    Limits(500, 300),
    Limits(250, 240),
    Limits(120, 200),
    Limits(60, 160),
    Limits(25, 100),
    Limits(8, 60),
)
LAST = Limits(4, 40)
SECTIONS = (  # anchor, name in the navigation, function
    ("faults", "Faults", overview.faults),
    ("not-run", "Not run", overview.not_run),
    ("inside", "Inside", contents.inside),
    ("sizes", "Sizes", contents.sizes),
    ("times", "Time", contents.times),
    ("matrix", "Matrix", answers.matrix),
    ("bandwidth", "Bandwidth", answers.bandwidth),
    ("launch", "Start", answers.launch),
    ("checks", "Checks", overview.checks),
    ("versions", "Versions", answers.versions),
    ("packages", "Materials", contents.materials),
)


def write_page(report: Report, version: str) -> str:
    """Return the document, with at most `MAX_BYTES` bytes: long tables and texts are shortened, and state it."""
    for limits in LIMITS:
        if volume(report, *limits) > MAX_BYTES:  # a page that is too long is not even written
            continue
        page = document(report, version, limits)
        if len(page.encode()) <= MAX_BYTES:
            return page
    return document(shorten_texts(report, LAST.width), version, LAST)  # texts that no table cuts, too


def document(report: Report, version: str, limits: Limits) -> Html:
    """Return the document within limits. version: of envbuild."""
    links = [element("li", element("a", name, href=f"#{anchor}")) for anchor, name, _ in SECTIONS]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=content_policy()),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href=ICON),
        element("title", text(f"{report.name[:80]}: {report.verdict.title} (envbuild report)")),
        element("style", CSS),
    )
    main = element("main", *(write(report, limits) for _, _, write in SECTIONS), id="content", tabindex="-1")
    footer = element(
        "footer", element("p", f"Written by envbuild {version}. This page has no script and makes no request.")
    )
    body = element(
        "body",
        element("a", "Skip to the content", href="#content", class_="skip"),
        overview.head(report, limits),
        element("nav", element("ul", *links), aria_label="Sections"),
        main,
        footer,
    )
    return join([Html("<!DOCTYPE html>\n"), element("html", head, body, lang="en"), Html("\n")])
