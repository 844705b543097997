"""A job of checks, and the result of each, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

PASS, FAIL, NOT_RUN = "pass", "fail", "not-run"
GPU, FABRIC = "gpu", "fabric"  # tiers
UNITS = ("GB/s", "Gb/s")  # of what is measured
BEYOND = 1e30  # what is measured is smaller: bytes, ranks, GB/s, seconds
LONGEST_CURVE = 64  # points: one for each power of two that a size can be


class NotRunError(Exception):
    """The reason why a check does not run here."""


class FailedError(Exception):
    """The failure of a check, with a hint as second argument."""


@dataclass(frozen=True)
class Figure:
    """A measurement, for a floor of the name `test`; `size`: bytes of its message, 0: it has none."""

    test: str
    value: float
    unit: str
    size: int = 0
    ranks: int = 0
    nodes: int = 1
    algorithm: str = ""


@dataclass(frozen=True)
class Curve:
    """Bandwidths of one operation over message sizes. `points`: (bytes, value), sizes rising."""

    title: str
    unit: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Outcome:
    """The result of one check: whether it ran correctly. `transport`: what logs state about it.

    `figures` are compared with floors; `curves` are what a report draws, and the last point of one may be a figure.
    """

    name: str
    tier: str
    status: str
    detail: str
    hint: str = ""
    seconds: float = 0.0
    figures: tuple[Figure, ...] = ()
    transport: Mapping[str, Any] = field(default_factory=dict)
    curves: tuple[Curve, ...] = ()


@dataclass(frozen=True)
class Job:
    """The image, and what a node of its target has. Empty values: not known.

    `net`: NCCL_NET that the launch forces. `versions`: component → version; `layers`: the recipes of the image.
    `checks`: those that its recipes declare, each with name, command and expect. `modules`: files that were packed with
    the program, by name.
    """

    image: str = ""
    lock: str = ""
    target: str = ""
    tier: str = GPU
    gpu: str = ""
    sm: str = ""
    gpus: int = 0
    fabric: str = "none"
    nics: int = 0
    efa: int = 0
    net: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    layers: tuple[str, ...] = ()
    checks: tuple[Mapping[str, str], ...] = ()


def job_data(job: Job) -> dict[str, Any]:
    """Return a job as JSON has it."""
    return {**asdict(job), "versions": dict(job.versions), "checks": [dict(check) for check in job.checks]}


def read_job(data: Mapping[str, Any]) -> Job:
    """Return the job that `job_data` wrote."""
    known = {item.name for item in fields(Job)}
    values = {key: value for key, value in data.items() if key in known}
    for key in ("layers", "checks"):
        values[key] = tuple(values.get(key, ()))
    return Job(**values)


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """Return a result as JSON has it, without empty values but for those that every result has."""
    always = ("name", "tier", "status", "detail")
    values = {key: value for key, value in asdict(outcome).items() if value or key in always}
    for key in ("figures", "curves"):
        if key in values:
            values[key] = [asdict(item) for item in getattr(outcome, key)]
    return values


def read_outcome(data: Mapping[str, Any]) -> Outcome:
    """Return the result that `outcome_data` wrote. Raises KeyError, TypeError and ValueError for another value."""
    values = dict(data)
    figures = tuple(Figure(**item) for item in values.pop("figures", ()))
    curves = tuple(read_curve(item) for item in values.pop("curves", ()))
    outcome = Outcome(**values, figures=figures, curves=curves)
    texts = (outcome.name, outcome.tier, outcome.status, outcome.detail, outcome.hint)
    known = isinstance(outcome.transport, Mapping) and is_number(outcome.seconds)
    if not known or not all(isinstance(text, str) for text in texts):
        raise TypeError("a result has a value of another kind")
    if outcome.status not in (PASS, FAIL, NOT_RUN) or outcome.tier not in (GPU, FABRIC):
        raise ValueError(f"unknown status or tier: {outcome.status}, {outcome.tier}")
    if not all(is_figure(figure) for figure in figures):
        raise TypeError("a figure is not a number with a name and a unit")
    return outcome


def bandwidth_curves(title: str, rows: Iterable[tuple[int, float]]) -> tuple[Curve, ...]:
    """Return the curve of measured (bytes, GB/s); none where all bandwidths are 0, as those of one rank."""
    points = {size: value for size, value in rows if size > 0}
    return (Curve(title, "GB/s", tuple(sorted(points.items())[-LONGEST_CURVE:])),) if any(points.values()) else ()


def read_curve(data: Mapping[str, Any]) -> Curve:
    """Return the curve that `outcome_data` wrote. Raises KeyError, TypeError and ValueError for another value."""
    points = tuple((size, value) for size, value in data["points"])
    curve = Curve(**{**data, "points": points})
    sizes = [size for size, _ in points]
    known = isinstance(curve.title, str) and curve.unit in UNITS
    if not known or not all(is_count(size) and is_number(value) for size, value in points):
        raise TypeError("a curve is not sizes and numbers with a title and a unit")
    if not 0 < len(points) <= LONGEST_CURVE or sizes[0] <= 0 or sizes != sorted(set(sizes)):
        raise ValueError(f"a curve does not have 1 to {LONGEST_CURVE} rising sizes")
    return curve


def is_figure(figure: Figure) -> bool:
    """Return whether the fields of a figure have their kinds."""
    counts = (figure.size, figure.ranks, figure.nodes)
    known = figure.unit in UNITS and is_number(figure.value) and all(map(is_count, counts))
    return known and isinstance(figure.test, str) and isinstance(figure.algorithm, str)


def is_number(value: object) -> bool:
    """Return whether a value of JSON is a number that can be measured."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -BEYOND < value < BEYOND


def is_count(value: object) -> bool:
    """Return whether a value of JSON is such a number without a fraction."""
    return isinstance(value, int) and is_number(value)
