"""A report as test cases, for CI: each check of verify, each fault beside them, and each tier that did not run."""

from __future__ import annotations

from typing import NamedTuple

from envbuild.report.model import CheckRow, Report


class Case(NamedTuple):
    """A test case. `status`: pass, fail or not-run."""

    suite: str
    name: str
    status: str
    text: str = ""
    fix: str = ""
    seconds: float = 0.0


def report_cases(report: Report) -> tuple[Case, ...]:
    """Return the cases of a report. What did not run is a case of its own, which CI systems list as skipped."""
    return (*map(check_case, report.checks), *missing_tiers(report), *other_cases(report))


def check_case(row: CheckRow) -> Case:
    """Return the case of a check."""
    return Case(row.tier, row.name, row.status, row.detail, row.fix, row.seconds)


def missing_tiers(report: Report) -> tuple[Case, ...]:
    """Return a case for each tier without a check."""
    with_checks = {row.tier for row in report.checks}
    return tuple(
        Case(tier.name, f"tier {tier.name}", "not-run", tier.state.partition(": ")[2])
        for tier in report.tiers
        if tier.name not in with_checks
    )


def other_cases(report: Report) -> tuple[Case, ...]:
    """Return a case for each fault that no check states, and one for the version matrix."""
    failed = {f"{row.name}: {row.detail}" for row in report.checks if row.status == "fail"}
    cases = [
        Case("image", one.where or "fault", "fail", one.text, one.fix)
        for one in report.faults
        if one.text not in failed
    ]
    if report.matrix and report.matrix.verdict not in ("conflict", "unknown"):
        status = "not-run" if report.matrix.verdict == "recorded" else "pass"
        cases.append(Case("image", "version matrix", status, f"{report.matrix.verdict}: {report.matrix.title}"))
    return tuple(cases)
