"""The report of an examination for a terminal: a group, a mark, what was found, what repairs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .checks import GROUPS
from .examination import Examination
from .model import FAIL, MINOR, NOT_RUN, PASS, SEVERITIES, Result

MARKS = {PASS: "ok", FAIL: "FAIL", NOT_RUN: "-"}
SEVERITY = {"minor": "minor", "user": "you can fix it", "administrator": "ask an administrator", "hardware": "hardware"}


def report_text(found: Examination) -> str:
    """Return the report."""
    facts = found.facts
    lines = [f"{facts['host']}: {facts['place']} ({facts['place_because']})", ""]
    for group in dict.fromkeys([*GROUPS, *(result.group for result in found.results)]):
        rows = [result for result in found.results if result.group == group]
        if rows:
            root = facts["user"] == "root"
            lines += [group, *(line for row in joined(rows) for line in result_lines(row, root=root)), ""]
    return "\n".join([*lines, summary_line(found)])


def joined(rows: Sequence[Result]) -> list[Result]:
    """Return the results, with checks that did not run for the same reason as one."""
    alike: dict[tuple[str, ...], list[Result]] = {}
    for number, row in enumerate(rows):
        key = (row.detail, row.fix, str(row.applies)) if row.status == NOT_RUN else (str(number),)
        alike.setdefault(key, []).append(row)
    return [replace(same[0], check=", ".join(row.check for row in same)) for same in alike.values()]


def result_lines(result: Result, *, root: bool = False) -> list[str]:
    """Return a result as lines. `root`: whether its reader is the administrator."""
    words = SEVERITY if not root else {**SEVERITY, "administrator": "administrator", "user": "the user"}
    note = f" [{words[result.severity]}]" if result.severity in words else ""
    reason = ("not known: " if result.applies else "does not apply: ") if result.status == NOT_RUN else ""
    mark = "warn" if result.severity == MINOR else MARKS[result.status]
    lines = [f"  {mark:<5} {result.check}: {reason}{result.detail}{note}"]
    word = "fix" if result.status == FAIL else "to run it"
    return [*lines, f"        {word}: {result.fix}"] if result.fix else lines


def summary_line(found: Examination) -> str:
    """Return the counts and what they mean, the failures with the worst first, and the checks that are not known."""
    counts, minor = found.counts, sum(result.severity == MINOR for result in found.failures)
    failed = f"{counts[FAIL]} failed" + (f" ({minor} minor)" if minor else "")
    target = f" for {found.need.source}" if found.need.source else ""
    if found.log_alone:
        return f"{log_verdict(found)}{target}; this machine is not judged: {counts[PASS]} passed, {failed}"
    if found.serious:
        verdict = "not ready"
    elif found.unknown:
        verdict = "no serious failure" if minor else "no failure"
    else:
        verdict = "ready, with minor failures" if minor else "ready"
    worst = "".join(
        f"; {severity}: {', '.join(checks)}"
        for severity in reversed(SEVERITIES)
        if (checks := dict.fromkeys(result.check for result in found.serious if result.severity == severity))
    )
    unknown = len(found.unknown)
    names = ", ".join(dict.fromkeys(result.check for result in found.unknown))
    numbers = f"{counts[PASS]} passed, {failed}, {unknown} not known, {counts[NOT_RUN] - unknown} do not apply"
    return f"{verdict}{target}: {numbers} ({found.seconds:.1f} s){worst}" + (f"; not known: {names}" if names else "")


def log_verdict(found: Examination) -> str:
    """Return what a log alone states. A log without a known line states nothing."""
    if found.serious:
        return "the log has faults"
    if found.failures:
        return "the log has minor faults"
    return "the log has no fault" if found.counts[PASS] else "the log is not judged"
