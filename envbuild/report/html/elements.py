"""HTML elements as values. Text is escaped where an element is made, so that no other place can forget it.

Images and specs are not trusted: what is not shown, or reorders what is shown, becomes an escape sequence
(`envbuild.core.text.printable`), and what HTML would read as markup becomes a character reference.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import NamedTuple

from envbuild.core.text import printable
from envbuild.report import shorten


class Html(str):
    """A text that is HTML already: only the functions of this package make it."""

    __slots__ = ()


class Limits(NamedTuple):
    """The most rows of a table, and the most characters of a text in it: a page has a largest size."""

    rows: int
    width: int


Child = Html | str | int | float | None
EMPTY = Html("")


def text(value: object) -> Html:
    """Return a text of any origin as HTML, on one line."""
    return value if isinstance(value, Html) else Html(html.escape(printable(value)))


def lines(value: str) -> Html:
    """Return a text of several lines as HTML, for `pre`."""
    return Html("\n".join(text(line) for line in value.split("\n")))


def cut(value: object, width: int) -> Html:
    """Return a text as HTML, with at most `width` characters of it."""
    return value if isinstance(value, Html) else text(shorten.cut(str(value), width))


def element(tag: str, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """Return an element. `class_="x"` is written ``class``, `aria_label` is ``aria-label``; True is an attribute
    without a value, None and False none."""
    inner = "".join(text(child) for child in children if child is not None)
    found = f"<{tag}{_attributes(attributes)}>"
    return Html(found if tag in ("meta", "link") else f"{found}{inner}</{tag}>")


def svg(tag: str, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """Return an element of SVG: without children it closes itself."""
    if children:
        return element(tag, *children, **attributes)
    return Html(f"<{tag}{_attributes(attributes)}/>")


def join(parts: Iterable[Child], between: str = "") -> Html:
    """Return the parts one after another."""
    return Html(between.join(text(part) for part in parts if part is not None))


def _attributes(attributes: dict[str, str | int | float | bool | None]) -> str:
    found = []
    for name, value in attributes.items():
        key = name.rstrip("_").replace("_", "-")
        if value is True:
            found.append(f" {key}")
        elif value is not None and value is not False:
            words = f"{value:g}" if isinstance(value, float) else str(value)
            found.append(f' {key}="{text(words)}"')
    return "".join(found)
