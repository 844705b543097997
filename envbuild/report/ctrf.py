"""A report as CTRF, by the writer that doctor has."""

from __future__ import annotations

import json

from envbuild.doctor.ctrf import ctrf_document, test_row
from envbuild.report.cases import report_cases
from envbuild.report.model import Report


def write_ctrf(report: Report, version: str) -> str:
    """Return the document. Its times are those of the lock, so that equal inputs have equal bytes."""
    tests = [
        test_row(case.name, case.status, case.seconds, case.tier, case.detail, case.fix)
        for case in report_cases(report)
    ]
    moment = report.epoch * 1000
    return json.dumps(ctrf_document("envbuild report", version, tests, moment, moment), indent=1) + "\n"
