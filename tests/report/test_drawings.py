"""Drawings of a report: areas are sizes, heights are values, and a floor is where its value is."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.report.html.answers import series_part
from envbuild.report.html.bars import bars
from envbuild.report.html.curve import curve, round_step, size_text
from envbuild.report.html.elements import Limits
from envbuild.report.html.treemap import Box, layout, treemap
from envbuild.report.model import Part, Step
from envbuild.report.series import Floor, Series
from tests.support.reports import POINTS

pytestmark = pytest.mark.unit

WHOLE = Box(0, 0, 960, 340)
LIMITS = Limits(100, 200)
SERIES = Series("all-reduce", "GB/s", POINTS, Floor(18.0, "a health check"))


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=40))
def test_areas_are_sizes_and_fill_the_whole(sizes: list[int]) -> None:
    ranked = sorted(map(float, sizes), reverse=True)
    boxes = layout(ranked, WHOLE)
    scale = WHOLE.width * WHOLE.height / sum(ranked)
    for size, box in zip(ranked, boxes, strict=True):
        assert box.width * box.height == pytest.approx(size * scale, rel=1e-6)
        assert box.x >= -1e-6 and box.y >= -1e-6
        assert box.x + box.width <= WHOLE.width + 1e-3
        assert box.y + box.height <= WHOLE.height + 1e-3
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert min(across, down) <= 1e-3


def test_equal_parts_are_nearly_square() -> None:
    for box in layout([1.0] * 12, Box(0, 0, 400, 300)):
        assert box.width == pytest.approx(box.height)


def test_parts_without_a_size_are_not_drawn() -> None:
    assert layout([0.0, 0.0], WHOLE) == []
    drawing = treemap([Part("large", 10**9), Part("none", 0)], "sizes")
    assert "large" in drawing
    assert "none" not in drawing


def test_a_name_is_as_long_as_its_rectangle() -> None:
    drawing = treemap([Part("a" * 300, 10**9), Part("b" * 300, 2 * 10**7)], "sizes")
    names = re.findall(r'class="name">([^<]*)<', drawing)
    assert [len(name) < 130 for name in names] == [True] * len(names)
    assert names[0].endswith("…")
    assert f"{'a' * 300}: 1.0 GB, 98%" in drawing


def points_of(drawing: str) -> list[tuple[float, float]]:
    (found,) = re.findall(r'points="([^"]+)"', drawing)
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in found.split())]


def test_a_curve_rises_with_its_values_and_its_sizes_are_evenly_apart() -> None:
    placed = points_of(curve(SERIES))
    steps = {round(b[0] - a[0], 0) for a, b in pairwise(placed)}
    assert len(placed) == len(POINTS)
    assert len(steps) <= 2  # powers of two, but for rounding
    assert [y for _, y in placed] == sorted((y for _, y in placed), reverse=True)


def test_a_floor_is_where_its_value_is() -> None:
    drawing = curve(Series("s", "GB/s", ((1024, 5.0), (2048, 20.0)), Floor(20.0, "x")))
    (floor,) = re.findall(r'<line x1="[\d.]+" y1="([\d.]+)"[^>]*class="floor"', drawing)
    assert float(floor) == pytest.approx(points_of(drawing)[1][1])


@pytest.mark.parametrize(("value", "mark"), [(18.0, "✓"), (17.99, "✗")])
def test_the_largest_size_is_compared_with_the_floor_without_tolerance(value: float, mark: str) -> None:
    series = Series("s", "GB/s", ((1024, 99.0), (2048, value)), Floor(18.0, "a health check"))
    text = series_part(series, LIMITS)
    assert f">{mark}</span> {value:g} GB/s at 2 KiB, floor 18 GB/s" in text
    assert "a health check" in text


def test_a_series_without_points_is_not_a_pass() -> None:
    text = series_part(Series("s", "GB/s", (), Floor(1.0, "x")), LIMITS)
    assert "not run: s has no measured point" in text
    assert "✓" not in text


@pytest.mark.parametrize("points", [((8, 0.0),), ((8, 0.0), (16, 0.0)), ((1 << 40, 1e-9),), ((1, 1e12), (2, 3.0))])
def test_odd_series_are_drawn(points: tuple[tuple[int, float], ...]) -> None:
    for x, y in points_of(curve(Series("s", "GB/s", points))):
        assert 0 <= x <= 720
        assert 0 <= y <= 300


@pytest.mark.parametrize("points", [((512 << 20, 470.0), (16 << 30, 999.0)), ((1024, 0.001), (1023 << 30, 0.0058))])
def test_the_names_on_the_axes_are_inside_the_drawing(points: tuple[tuple[int, float], ...]) -> None:
    letter = 7.0  # width at 12 px, about
    texts = re.findall(
        r'<text x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)">([^<]+)<', curve(Series("s", "GB/s", points))
    )
    assert len(texts) >= 6
    for x, anchor, words in texts:
        width = letter * len(words)
        left = float(x) - (width if anchor == "end" else width / 2)
        assert left >= 0 and left + width <= 720, words


@pytest.mark.parametrize(
    ("size", "text"), [(1, "1 B"), (1024, "1 KiB"), (16 << 20, "16 MiB"), (8 << 30, "8 GiB"), (1536, "1.5 KiB")]
)
def test_sizes_of_messages(size: int, text: str) -> None:
    assert size_text(size) == text


@given(st.floats(1e-6, 1e9))
def test_an_axis_has_few_lines(most: float) -> None:
    assert 2 <= most / round_step(most) <= 5.0001


def test_bars_beyond_the_longest_ones_are_one_row() -> None:
    steps = [Step(f"unit {number}", 100.0 - number, "build") for number in range(40)]
    text = bars("Build", steps, LIMITS)
    assert text.count('class="bar"') == 14
    assert "26 shorter ones" in text
    assert 'width="100"' in text
