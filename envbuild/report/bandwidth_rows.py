"""Measured bandwidths of a report: figures and curves of evidence of the tiers gpu and fabric, with their floors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envbuild.core.text import counted
from envbuild.gpu.model import Figure, Outcome
from envbuild.report.series import Floor, FloorRow, Series
from envbuild.spec.target import Target
from envbuild.verify.floor_verdict import comparable_floor
from envbuild.verify.measured import Measured
from envbuild.verify.tiers import MEASURED


def series_rows(measured: Sequence[Measured], target: Target | None) -> tuple[Series, ...]:
    """Return what was measured: figures first, then the first curve of each check without one, then the others."""
    if target is None:
        return ()
    found = [
        item for one in measured for outcome in one.outcomes for item in outcome_series(outcome, target, source_of(one))
    ]
    return tuple(series for _, series in sorted(found, key=lambda item: item[0]))


def outcome_series(outcome: Outcome, target: Target, source: str) -> Iterator[tuple[int, Series]]:
    """Yield the series of a check, each with its rank. The curve that ends with a figure is the figure's."""
    curves = list(outcome.curves)
    for figure in outcome.figures:
        end = (figure.unit, (figure.size, figure.value))
        curve = next((one for one in curves if (one.unit, one.points[-1]) == end), None)
        curves = [one for one in curves if one is not curve]
        points = curve.points if curve else ((figure.size, figure.value),)
        yield 0, Series(f"{outcome.name} (tier {outcome.tier})", figure.unit, points, floor_of(figure, target), source)
    for rank, curve in enumerate(curves, 1):
        title = f"{outcome.name}, {curve.title} (tier {outcome.tier})"
        yield rank, Series(title, curve.unit, curve.points, None, source)


def floor_of(figure: Figure, target: Target) -> Floor | None:
    """Return the floor that a figure is compared with; None: there is none."""
    floor, _ = comparable_floor(figure, target) if figure.test else (None, "")
    return Floor(floor.at_least, floor.because) if floor else None


def source_of(measured: Measured) -> str:
    """Return where and when evidence was measured: without the name of a host, which it does not have."""
    document = measured.document
    place = document["place"]
    gpus, nodes = place.get("gpus", []), place.get("nodes", 1)
    parts = [
        f"{len(gpus)} x {gpus[0]}" if gpus else "",
        counted(nodes, "node") if isinstance(nodes, int) else "",
        f"driver {place['driver']}" if place.get("driver") else "",
        f"{document['program']}, {document['date']}",
    ]
    return ", ".join(filter(None, parts))


def floor_rows(target: Target) -> tuple[FloorRow, ...]:
    """Return the floors of a target, each with its source."""
    return tuple(
        FloorRow(name, floor.value, floor.unit, floor.because) for name, floor in sorted(target.thresholds.items())
    )


def no_bandwidth(target: Target | None, measured: Sequence[Measured]) -> str:
    """Return why there is no measured bandwidth."""
    if target is None:
        return "not run: no target is known whose floors a measurement is compared with"
    if not target.gpu and target.fabric in ("none", "ethernet"):
        return f"not run: target {target.name} has neither GPUs nor a fabric to measure"
    if measured:
        return f"not run: the evidence of tier {' and '.join(one.tier for one in measured)} has no measured bandwidth"
    return (
        f"not run: there is no evidence of tier {' or '.join(MEASURED)} of this lock: envbuild verify NAME --tier gpu"
    )
