"""Tier 1, the audit: compares the content of an image (`inspect_image`) with the declared content. Pure.

A check is a function ``NAME_results(report, expected)`` in `CHECKS`. It yields one result for each comparison. A
comparison without a declaration has no result, so that it does not count as a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from envbuild.verify.cpu import cpu_results
from envbuild.verify.cuda import cuda_results
from envbuild.verify.declared_contents import Expectations
from envbuild.verify.driver import driver_results
from envbuild.verify.file_rules import file_results
from envbuild.verify.packages import debian_results, module_results, python_results
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.shared_libraries import library_results
from envbuild.verify.single_copy import single_results
from envbuild.verify.symbols import link_results

Report = Mapping[str, Any]
Check = Callable[[Report, Expectations], Iterable[AuditResult]]

LONGEST = 400  # characters of a report's fault

CHECKS: tuple[Check, ...] = (  # in the order of the results
    debian_results,
    python_results,
    module_results,
    library_results,
    link_results,
    single_results,
    driver_results,
    cpu_results,
    cuda_results,
    file_results,
)


def audit(report: Report, expected: Expectations) -> list[AuditResult]:
    """Return the results of every check, in a fixed order."""
    return [result for check in CHECKS for result in _results(check, report, expected)]


def _results(check: Check, report: Report, expected: Expectations) -> Iterator[AuditResult]:
    """Yield the results of a check. A program of the image printed the report: what cannot be compared has failed."""
    try:
        yield from check(report, expected)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        name = check.__name__.removesuffix("_results")
        fault = f"the report of the image cannot be compared: {type(error).__name__}: {error}"[:LONGEST]
        yield AuditResult(f"report of {name}", Status.FAIL, fault)
