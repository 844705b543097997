"""A treemap: parts as rectangles whose areas are their sizes, drawn in SVG.

The layout is that of Bruls, Huizing and van Wijk, "Squarified Treemaps" (2000): rows are filled along the shorter side
while the worst ratio of sides of a row gets no worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envbuild.core.text import amount, printable
from envbuild.report.html.elements import Html, element, svg
from envbuild.report.model import Part

WIDTH, HEIGHT, LOW = 960.0, 340.0, 200.0
FEW = 6  # parts: their drawing is low
GAP = 2.0
LETTER, LINE = 7.6, 17.0  # about the width and height of a letter at 13 px
COLOURS = 6
LEAST = 0.0004  # of the whole area: smaller parts would not be seen, and are in the table alone


class Box(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


def layout(sizes: Sequence[float], whole: Box) -> list[Box]:
    """Return a rectangle for each size, in their order, which must fall. Together they fill the whole."""
    total = sum(sizes)
    if total <= 0:
        return []
    scale = whole.width * whole.height / total
    areas = [size * scale for size in sizes]
    boxes: list[Box] = []
    rest = whole
    while areas:
        side = max(min(rest.width, rest.height), 1e-9)
        count = 1
        while count < len(areas) and worst(areas[: count + 1], side) <= worst(areas[:count], side):
            count += 1
        row, areas = areas[:count], areas[count:]
        placed, rest = fill(row, rest)
        boxes += placed
    return boxes


def worst(row: Sequence[float], side: float) -> float:
    """Return the largest ratio of the sides of the rectangles of a row along a side."""
    depth = sum(row) / side
    return max(max(depth * depth / area, area / (depth * depth)) if area > 0 else 1e9 for area in row)


def fill(row: Sequence[float], rest: Box) -> tuple[list[Box], Box]:
    """Return the rectangles of a row along the shorter side, and what remains."""
    total, boxes = sum(row), []
    if rest.width >= rest.height:
        depth, at = total / max(rest.height, 1e-9), rest.y
        for area in row:
            boxes.append(Box(rest.x, at, depth, area / max(depth, 1e-9)))
            at += boxes[-1].height
        return boxes, Box(rest.x + depth, rest.y, max(rest.width - depth, 0.0), rest.height)
    depth, at = total / max(rest.width, 1e-9), rest.x
    for area in row:
        boxes.append(Box(at, rest.y, area / max(depth, 1e-9), depth))
        at += boxes[-1].width
    return boxes, Box(rest.x, rest.y + depth, rest.width, max(rest.height - depth, 0.0))


def treemap(parts: Sequence[Part], title: str) -> Html:
    """Return the drawing; a table beside it has the same figures."""
    total = sum(part.size for part in parts)
    ranked = sorted((part for part in parts if part.size > LEAST * total), key=lambda part: (-part.size, part.name))
    height = LOW if len(ranked) <= FEW else HEIGHT
    boxes = layout([float(part.size) for part in ranked], Box(0, 0, WIDTH, height))
    groups = [
        tile(part, box, at % COLOURS, part.size / total)
        for at, (part, box) in enumerate(zip(ranked, boxes, strict=True))
    ]
    return svg(
        "svg", element("title", title), *groups, viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=title,
        class_="treemap",
    )  # fmt: skip


def tile(part: Part, box: Box, colour: int, share: float) -> Html:
    """Return the rectangle of one part, with as much of its name as it has place for."""
    width, height = max(box.width - GAP, 0.5), max(box.height - GAP, 0.5)
    words = f"{printable(part.name)}: {amount(part.size)}, {share:.0%}"
    rect = svg(
        "rect", x=round(box.x, 1), y=round(box.y, 1), width=round(width, 1), height=round(height, 1), rx=3,
        class_=f"tile c{colour}",
    )  # fmt: skip
    letters = int((width - 14) / LETTER)
    labels = []
    if letters >= 4 and height >= LINE + 8:
        name = printable(part.name)
        name = name if len(name) <= letters else f"{name[: letters - 1]}…"
        labels.append(label(name, box, 1, "name"))
        if height >= 2 * LINE + 8 and len(amount(part.size)) <= letters:
            labels.append(label(amount(part.size), box, 2, "size"))
    return svg("g", element("title", words), rect, *labels)


def label(words: str, box: Box, line: int, kind: str) -> Html:
    """Return a line of text in the upper left corner of a rectangle."""
    return svg("text", words, x=round(box.x + 8, 1), y=round(box.y + 4 + line * LINE, 1), class_=kind)
