"""Tier 2, and the results of tiers that cannot run here: the verify lines of recipes, each a command in the finished
image."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from envbuild.spec.recipe import Check
from envbuild.verify.results import AuditResult, Status, quote_output
from envbuild.verify.run_inspector import Runner
from envbuild.verify.tiers import ELSEWHERE, RUNNING

SHELL_COMMAND = "envbuild run NAME -- /bin/sh"
OUTPUT_LINES = 15  # lines of output reported for a failure


def run_checks(
    checks: Sequence[Check],
    runner: Runner,
    tiers: Sequence[str] = RUNNING,
    reasons: Mapping[str, str] = ELSEWHERE,
    *,
    shell: str = SHELL_COMMAND,
) -> list[AuditResult]:
    """Run the checks of `tiers` one after another.

    `runner`: returns exit code and output; its own errors pass through.
    `reasons`: why a check of another tier is reported as not run.
    `shell`: the command that opens a shell in the image: the hint of a failure.
    """
    results = []
    for check in checks:
        if check.tier in tiers:
            results.append(run_check(check, runner, shell))
        else:
            reason = reasons.get(check.tier, f"tier {check.tier} was not requested")
            results.append(AuditResult(check.name, Status.NOT_RUN, reason, check.tier))
    return results


def run_check(check: Check, runner: Runner, shell: str = SHELL_COMMAND) -> AuditResult:
    """Run a check; return its result."""
    if fault := _pattern_fault(check):
        return fault
    return check_result(check, *runner(["/bin/sh", "-c", check.command]), shell)


def check_result(check: Check, code: int, output: str, shell: str = SHELL_COMMAND) -> AuditResult:
    """Return the result of a check that ran: it passes with exit code 0 and `expect` (a regular expression, ``^`` and
    ``$`` at lines) somewhere in the output."""
    if fault := _pattern_fault(check):
        return fault
    last = quote_output(output, OUTPUT_LINES)
    if code != 0:
        return _failure(check, f"exit code {code} of: {check.command}", last, shell)
    if not re.search(check.expect, output, re.MULTILINE):
        return _failure(check, f"no match for {check.expect!r} in the output of: {check.command}", last, shell)
    matched = f", output matches {check.expect!r}" if check.expect else ""
    return AuditResult(check.name, Status.PASS, f"exit code 0{matched}", check.tier)


def _pattern_fault(check: Check) -> AuditResult | None:
    try:
        re.compile(check.expect, re.MULTILINE)
    except re.error as error:
        fault = f"expect is not a regular expression: {error}"
        return AuditResult(check.name, Status.FAIL, fault, check.tier, "correct the recipe's verify()")
    return None


def _failure(check: Check, fault: str, last: str, shell: str) -> AuditResult:
    detail = f"{fault}\n{last}" if last else f"{fault}\n(no output)"
    return AuditResult(check.name, Status.FAIL, detail, check.tier, f"open a shell in the image: {shell}")
