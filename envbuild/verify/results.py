"""What one look at an image gave: pass, fail, or not run. A thing that was not looked at is never a pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Outcome of one check."""

    PASS = "pass"
    FAIL = "fail"
    NOT_RUN = "not-run"


@dataclass(frozen=True, slots=True)
class AuditResult:
    """One check: `detail` says what was compared and what was found, `hint` what to do about a failure. `tier`: audit |
    run | gpu | fabric."""

    name: str
    status: Status
    detail: str = ""
    tier: str = "audit"
    hint: str = ""


def judged(name: str, faults: Iterable[str], compared: str, hint: str = "") -> AuditResult:
    """Fails when there are faults and lists them; otherwise passes and says what was compared."""
    found = sorted(faults)
    if found:
        return AuditResult(name, Status.FAIL, f"{listed(found)} ({compared})", hint=hint)
    return AuditResult(name, Status.PASS, compared)


def listed(items: Iterable[str], limit: int = 12) -> str:
    """Items of a list for a person: the first ones, and how many more there are."""
    all_items = list(items)
    more = f"; and {len(all_items) - limit} more" if len(all_items) > limit else ""
    return "; ".join(all_items[:limit]) + more
