"""An examination as CTRF (Common Test Report Format), which CI systems read."""

from __future__ import annotations

from typing import Any

from .examination import Examination
from .model import FAIL, NOT_RUN, PASS, Result

STATES = {PASS: "passed", FAIL: "failed", NOT_RUN: "skipped"}


def ctrf_data(found: Examination, version: str) -> dict[str, Any]:
    """Return the report. A check that did not run is skipped, with its reason."""
    end = int(found.facts["time"]) * 1000
    counts = found.counts
    summary = {
        "tests": len(found.results), "passed": counts[PASS], "failed": counts[FAIL], "skipped": counts[NOT_RUN],
        "pending": 0, "other": 0, "start": end - int(found.seconds * 1000), "stop": end,
    }  # fmt: skip
    tool = {"name": "envbuild doctor", "version": version}
    tests = [test_data(result, found.times.get(result.check, 0.0)) for result in found.results]
    return {
        "reportFormat": "CTRF",
        "specVersion": "0.0.0",
        "results": {"tool": tool, "summary": summary, "tests": tests},
    }


def test_data(result: Result, seconds: float) -> dict[str, Any]:
    """Return one result. `seconds`: how long the check took, with its waiting for programs."""
    more = {"trace": f"fix: {result.fix}"} if result.fix else {}
    extra = {"severity": result.severity} if result.severity else {}
    return {
        "name": result.check, "status": STATES[result.status], "duration": round(seconds * 1000),
        "suite": [result.group], "message": result.detail,
        **more, **({"extra": extra} if extra else {}),
    }  # fmt: skip
