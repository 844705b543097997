"""A report as test cases, for CI: each check of verify, each fault beside them, and each tier that did not run."""

from __future__ import annotations

from envbuild.report.model import CheckRow, Report

IMAGE = "image"  # in place of a tier: cases about the whole image


def report_cases(report: Report) -> tuple[CheckRow, ...]:
    """Return the cases of a report. What did not run is a case of its own, which CI systems list as skipped."""
    return (*report.checks, *missing_tiers(report), *other_cases(report))


def missing_tiers(report: Report) -> tuple[CheckRow, ...]:
    """Return a case for each tier without a check."""
    with_checks = {row.tier for row in report.checks}
    return tuple(
        CheckRow(f"tier {tier.name}", tier.name, "not-run", tier.state.partition(": ")[2])
        for tier in report.tiers
        if tier.name not in with_checks
    )


def other_cases(report: Report) -> tuple[CheckRow, ...]:
    """Return a case for each fault that no check states, and one for the version matrix."""
    failed = {f"{row.name}: {row.detail}" for row in report.checks if row.status == "fail"}
    cases = [
        CheckRow(one.where or "fault", IMAGE, "fail", one.text, one.fix)
        for one in report.faults
        if one.text not in failed
    ]
    if report.matrix and report.matrix.verdict not in ("conflict", "unknown"):
        status = "not-run" if report.matrix.verdict == "recorded" else "pass"
        cases.append(CheckRow("version matrix", IMAGE, status, f"{report.matrix.verdict}: {report.matrix.title}"))
    return tuple(cases)
