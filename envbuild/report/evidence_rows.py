"""Rows of a report that evidence states: tiers, checks with their durations, faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from envbuild.core.text import human_list
from envbuild.report.model import CheckRow, Fault, Step, TierRow
from envbuild.spec.target import Target
from envbuild.verify.evidence import Evidence, count_results, tier_states
from envbuild.verify.floor_verdict import audit_results
from envbuild.verify.measured import Measured
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.tiers import ELSEWHERE, TIERS

VERIFY = "verify"
Seconds = Mapping[tuple[str, str], float]  # (tier, name of the check)


def measured_notes(measured: Sequence[Measured], what: str) -> Iterator[str]:
    """Yield what limits the results of jobs: `what` of a report they are not known to be of."""
    if of_name := {item.tier for item in measured if not item.of_file}:
        tiers = human_list(sorted(of_name), len(of_name))
        yield f"{tiers}: measured with an image of the same lock; it is not known whether with {what}"


def known_results(
    evidence: Evidence | None, measured: Sequence[Measured], target: Target | None
) -> tuple[AuditResult, ...]:
    """Return the results of evidence by tier; those of a tier with evidence of its own jobs are of these, compared
    with the floors of the target."""
    results = evidence.results if evidence else ()
    if target is None:
        return results
    tiers = {one.tier for one in measured}
    jobs = (of_lock(result, one) for one in measured for result in audit_results(one.outcomes, target))
    found = (*(result for result in results if result.tier not in tiers), *jobs)
    return tuple(sorted(found, key=lambda result: list(TIERS).index(result.tier)))


def of_lock(result: AuditResult, measured: Measured) -> AuditResult:
    """Return a result that states of what it is, also where a form has no notes (`measured_notes`)."""
    if measured.of_file:
        return result
    return replace(result, detail="; ".join(filter(None, (result.detail, "measured with an image of the same lock"))))


def known_seconds(evidence: Evidence | None, measured: Sequence[Measured]) -> Seconds:
    """Return the time of each check, as far as it was measured: of the part of verify with the same name."""
    times = {(one.tier, one.name): evidence.seconds.get(one.name, 0.0) for one in evidence.results} if evidence else {}
    return times | {(one.tier, one.name): one.seconds for job in measured for one in job.outcomes}


def tier_rows(results: Sequence[AuditResult], reason: str) -> tuple[TierRow, ...]:
    """Return the four tiers. reason: why there is no evidence of the tiers that run on every machine."""
    counts = count_results(results)
    rows = []
    for tier, state in tier_states(results).items():
        if not any(counts[tier].values()) and (why := ELSEWHERE.get(tier, reason)):
            state = f"not run: {why}"
        rows.append(TierRow(tier, TIERS[tier], state, counts[tier]["pass"]))
    return tuple(rows)


def check_rows(results: Sequence[AuditResult], seconds: Seconds) -> tuple[CheckRow, ...]:
    """Return the results in their order, each with its time (0: unknown)."""
    return tuple(
        CheckRow(one.name, one.tier, one.status.value, one.detail, one.hint, seconds.get((one.tier, one.name), 0.0))
        for one in results
    )


def failure_rows(results: Sequence[AuditResult]) -> tuple[Fault, ...]:
    """Return a fault for each check that failed."""
    return tuple(
        Fault(f"{one.name}: {one.detail}", f"tier {one.tier}", one.hint) for one in results if one.status == Status.FAIL
    )


def verify_steps(evidence: Evidence | None) -> tuple[Step, ...]:
    """Return the parts of the verification that took time, the longest first."""
    parts = sorted(evidence.seconds.items(), key=lambda item: (-item[1], item[0])) if evidence else []
    return tuple(Step(name, seconds, VERIFY) for name, seconds in parts)
