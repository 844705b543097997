"""A bandwidth over message sizes as SVG: a logarithmic axis of sizes, the floor as a dashed line."""

from __future__ import annotations

import math
from collections.abc import Sequence

from envbuild.report.html.elements import Html, element, join, svg
from envbuild.report.series import Series

WIDTH, HEIGHT = 720.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 88.0, 32.0, 16.0, 44.0
BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(size: int) -> str:
    """Return a size of a message as benchmarks name it: 16 MiB."""
    step = min(max(size.bit_length() - 1, 0) // 10, len(BINARY) - 1)
    return f"{size / 1024**step:g} {BINARY[step]}"


def round_step(most: float) -> float:
    """Return the distance of the lines of an axis: 1, 2 or 5 times a power of ten, about five of them."""
    rough = most / 5
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)


def curve(series: Series) -> Html:
    """Return the drawing of a series with at least one point; the table beside it has the same figures."""
    points = [(size, value) for size, value in series.points if size > 0 and math.isfinite(value)]
    floor = series.floor.value if series.floor else 0.0
    most = max([value for _, value in points] + [floor, 1e-9])
    step = round_step(most)
    top = math.ceil(most / step) * step
    sizes = [math.log2(size) for size, _ in points]
    low, high = min(sizes), max(sizes)
    span = max(high - low, 1.0)

    def at(size: float, value: float) -> tuple[float, float]:
        x = LEFT + (size - low) / span * (WIDTH - LEFT - RIGHT)
        return round(x, 1), round(HEIGHT - BOTTOM - max(value, 0.0) / top * (HEIGHT - TOP - BOTTOM), 1)

    placed = [at(size, value) for size, (_, value) in zip(sizes, points, strict=True)]
    dots = [
        svg("g", element("title", f"{size_text(size)}: {value:g} {series.unit}"), svg("circle", cx=x, cy=y, r=3.5))
        for (x, y), (size, value) in zip(placed, points, strict=True)
    ]
    parts = [
        *grid(series.unit, step, top),
        *size_axis(points, placed),
        svg("polyline", points=" ".join(f"{x:g},{y:g}" for x, y in placed), class_="curve"),
        *dots,
    ]
    if series.floor:
        y = at(low, floor)[1]
        parts.append(svg("line", x1=LEFT, y1=y, x2=WIDTH - RIGHT, y2=y, class_="floor"))
        words = f"floor {floor:g} {series.unit}"
        parts.append(svg("text", words, x=LEFT + 8, y=y - 6, class_="floor-name"))  # curves are lowest here
    title = f"{series.title}: {series.unit} over the size of a message"
    return svg(
        "svg", element("title", title), join(parts), viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", role="img",
        aria_label=title, class_="chart",
    )  # fmt: skip


def grid(unit: str, step: float, top: float) -> list[Html]:
    """Return the lines of the axis of values, each with its number."""
    found = []
    for number in range(round(top / step) + 1):
        y = round(HEIGHT - BOTTOM - number * step / top * (HEIGHT - TOP - BOTTOM), 1)
        found.append(svg("line", x1=LEFT, y1=y, x2=WIDTH - RIGHT, y2=y, class_="grid"))
        words = f"{number * step:g}" + (f" {unit}" if number * step >= top else "")
        found.append(svg("text", words, x=LEFT - 8, y=y + 4, text_anchor="end"))
    return found


def size_axis(points: Sequence[tuple[int, float]], placed: Sequence[tuple[float, float]]) -> list[Html]:
    """Return the names of about eight sizes below the drawing."""
    every = max(1, math.ceil(len(points) / 8))
    return [
        svg("text", size_text(size), x=x, y=HEIGHT - BOTTOM + 22, text_anchor="middle")
        for number, ((size, _), (x, _)) in enumerate(zip(points, placed, strict=True))
        if number % every == 0
    ]
