"""A job of checks, and the result of each, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

PASS, FAIL, NOT_RUN = "pass", "fail", "not-run"
GPU, FABRIC = "gpu", "fabric"  # tiers


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
class Outcome:
    """The result of one check: whether it ran correctly. `transport`: what logs state about it."""

    name: str
    tier: str
    status: str
    detail: str
    hint: str = ""
    seconds: float = 0.0
    figures: tuple[Figure, ...] = ()
    transport: Mapping[str, Any] = field(default_factory=dict)


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
    if outcome.figures:
        values["figures"] = [asdict(figure) for figure in outcome.figures]
    return values


def read_outcome(data: Mapping[str, Any]) -> Outcome:
    """Return the result that `outcome_data` wrote. Raises KeyError, TypeError and ValueError for another value."""
    values = dict(data)
    figures = tuple(Figure(**item) for item in values.pop("figures", ()))
    outcome = Outcome(**values, figures=figures)
    texts = (outcome.name, outcome.tier, outcome.status, outcome.detail, outcome.hint)
    if not all(isinstance(text, str) for text in texts) or not isinstance(outcome.transport, Mapping):
        raise TypeError("a result has a value of another kind")
    if outcome.status not in (PASS, FAIL, NOT_RUN) or outcome.tier not in (GPU, FABRIC):
        raise ValueError(f"unknown status or tier: {outcome.status}, {outcome.tier}")
    if not all(is_figure(figure) for figure in figures):
        raise TypeError("a figure is not a number with a name and a unit")
    return outcome


def is_figure(figure: Figure) -> bool:
    """Return whether the fields of a figure have their kinds."""
    numbers = (figure.value, figure.size, figure.ranks, figure.nodes)
    texts = (figure.test, figure.unit, figure.algorithm)
    known = all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in numbers)
    return known and all(map(math.isfinite, numbers)) and all(isinstance(item, str) for item in texts)
