"""Rows of a report that evidence states: tiers, checks with their durations, faults."""

from __future__ import annotations

from envbuild.report.model import CheckRow, Fault, Step, TierRow
from envbuild.verify.evidence import Evidence
from envbuild.verify.results import Status
from envbuild.verify.tiers import ELSEWHERE, TIERS

VERIFY = "verify"


def tier_rows(evidence: Evidence | None, reason: str) -> tuple[TierRow, ...]:
    """Return the four tiers. reason: why there is no evidence."""
    if evidence is None:
        return tuple(TierRow(tier, needs, f"not run: {ELSEWHERE.get(tier, reason)}") for tier, needs in TIERS.items())
    counts = evidence.counts()
    rows = []
    for tier, state in evidence.tiers().items():
        if state.startswith("not run") and not counts[tier]["not-run"] and tier in ELSEWHERE:
            state = f"not run: {ELSEWHERE[tier]}"
        rows.append(TierRow(tier, TIERS[tier], state, counts[tier]["pass"]))
    return tuple(rows)


def check_rows(evidence: Evidence | None) -> tuple[CheckRow, ...]:
    """Return the results of evidence in their order, each with the time of the part of the same name (0: unknown)."""
    if evidence is None:
        return ()
    return tuple(
        CheckRow(one.name, one.tier, one.status.value, one.detail, one.hint, evidence.seconds.get(one.name, 0.0))
        for one in evidence.results
    )


def failure_rows(evidence: Evidence | None) -> tuple[Fault, ...]:
    """Return a fault for each check that failed."""
    if evidence is None:
        return ()
    return tuple(
        Fault(f"{one.name}: {one.detail}", f"tier {one.tier}", one.hint)
        for one in evidence.results
        if one.status == Status.FAIL
    )


def verify_steps(evidence: Evidence | None) -> tuple[Step, ...]:
    """Return the parts of the verification that took time, the longest first."""
    if evidence is None:
        return ()
    parts = sorted(evidence.seconds.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Step(name, seconds, VERIFY) for name, seconds in parts)
