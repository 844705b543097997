"""The verdict of a report: one sentence that states what is known, and never more."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.core.text import counted
from envbuild.report.model import CheckRow, Fault, TierRow, Verdict

GOOD, BAD, OPEN = "good", "bad", "open"
PASSED = ("passed", "partly")


def judge(
    faults: Sequence[Fault],
    tiers: Sequence[TierRow],
    checks: Sequence[CheckRow],
    reason: str,
    title: str = "not verified",
) -> Verdict:
    """Return the verdict. reason: why there is no evidence of this image, with its title; empty if there is.

    Faults decide first. An image without evidence is open. So is one of whose checks some did not run: a GPU image on
    a machine without GPUs is verified in part.
    """
    passed = [tier for tier in tiers if tier.state.startswith(PASSED)]
    rest = [tier.name for tier in tiers if tier.state.startswith("not run")]
    count = counted(sum(tier.passed for tier in tiers), "check")
    without = f"; tiers not run: {', '.join(rest)}" if rest else ""
    if faults:
        return Verdict(BAD, counted(len(faults), "fault"), f"{count} passed{without}")
    if reason:
        return Verdict(OPEN, title, reason)
    if not passed:
        return Verdict(OPEN, "not verified", f"no tier passed{without}")
    names = " and ".join(tier.name for tier in passed)
    text = f"{count} passed ({'tier' if len(passed) == 1 else 'tiers'} {names}), and none failed"
    if left := sum(check.status == "not-run" for check in checks):
        return Verdict(OPEN, "verified in part", f"{text}; {counted(left, 'check')} did not run{without}")
    return Verdict(GOOD, "verified", f"{text}{without}")
