"""Two verdicts of each measurement: whether its check ran correctly, and whether its figure reaches the floor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envbuild.gpu.model import Figure, Outcome
from envbuild.spec.target import Target
from envbuild.verify.floor import Floor, find_floor
from envbuild.verify.results import AuditResult, Status


def audit_results(outcomes: Sequence[Outcome], target: Target) -> Iterator[AuditResult]:
    """Yield for each check whether it ran correctly, and for each figure with a floor whether it reaches it."""
    for outcome in outcomes:
        status = Status(outcome.status)
        yield AuditResult(outcome.name, status, outcome.detail, outcome.tier, outcome.hint)
        for figure in outcome.figures if status == Status.PASS else ():
            if figure.test:
                yield floor_result(outcome, figure, target)


def floor_result(outcome: Outcome, figure: Figure, target: Target) -> AuditResult:
    """Return whether a figure reaches its floor; without a floor, the comparison did not run."""
    name = f"{outcome.name}: reaches the floor"
    floor, reason = comparable_floor(figure, target)
    if floor is None:
        return AuditResult(name, Status.NOT_RUN, reason, outcome.tier)
    status = Status.PASS if figure.value >= floor.at_least else Status.FAIL
    hint = "" if status == Status.PASS else "envbuild doctor on each node; the transport is in the evidence"
    return AuditResult(name, status, f"{figure.value:g} {figure.unit}; {floor}", outcome.tier, hint)


def comparable_floor(figure: Figure, target: Target) -> tuple[Floor | None, str]:
    """Return the floor that a figure is compared with, or why there is none."""
    floor = find_floor(target, figure.test, figure.nodes, figure.algorithm)
    found = f"{figure.value:g} {figure.unit}"
    if floor is None:
        return None, f"no floor is known for {figure.test} of these nodes ({found} measured)"
    if floor.unit != figure.unit or (floor.size and figure.size < floor.size):
        limits = f"the floor is for {floor.size} bytes and more, in {floor.unit}"
        return None, f"{found} with {figure.size} bytes, and {limits}"
    return floor, ""
