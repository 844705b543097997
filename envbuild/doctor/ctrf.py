"""CTRF (Common Test Report Format), which CI systems read: of an examination, and of any other list of tests."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .examination import Examination
from .model import FAIL, MINOR, NOT_RUN, PASS, Result

OTHER = "other"  # of CTRF
STATES = {PASS: "passed", FAIL: "failed", NOT_RUN: "skipped", OTHER: OTHER}


def ctrf_data(found: Examination, version: str) -> dict[str, Any]:
    """Return the report. A check that did not run is skipped, with its reason."""
    end = int(found.facts["time"]) * 1000
    tests = [test_data(result, found.times.get(result.check, 0.0)) for result in found.results]
    return ctrf_document("envbuild doctor", version, tests, end - int(found.seconds * 1000), end)


def ctrf_document(tool: str, version: str, tests: list[dict[str, Any]], start: int, stop: int) -> dict[str, Any]:
    """Return the document of `tests`, as `test_row` makes them. start, stop: milliseconds since 1970."""
    counts = Counter(test["status"] for test in tests)
    summary = {
        "tests": len(tests), **{state: counts.get(state, 0) for state in STATES.values()},
        "pending": 0, "start": start, "stop": stop,
    }  # fmt: skip
    return {
        "reportFormat": "CTRF",
        "specVersion": "0.0.0",
        "results": {"tool": {"name": tool, "version": version}, "summary": summary, "tests": tests},
    }


def test_data(result: Result, seconds: float) -> dict[str, Any]:
    """Return one result. `seconds`: how long the check took, with its waiting for programs."""
    status = OTHER if result.severity == MINOR else result.status  # it works, and is not to make a CI fail
    return test_row(result.check, status, seconds, result.group, result.detail, result.fix, result.severity)


def test_row(
    name: str, status: str, seconds: float, suite: str, message: str, fix: str = "", severity: str = ""
) -> dict[str, Any]:
    """Return one test of a document. `status`: pass, fail or not-run."""
    more = {"trace": f"fix: {fix}"} if fix else {}
    extra = {"severity": severity} if severity else {}
    return {
        "name": name, "status": STATES[status], "duration": round(seconds * 1000),
        "suite": [suite], "message": message,
        **more, **({"extra": extra} if extra else {}),
    }  # fmt: skip
