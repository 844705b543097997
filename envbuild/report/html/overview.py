"""The head of the page: the verdict, the state of each tier, faults with their fixes, what was not run."""

from __future__ import annotations

from envbuild.core.text import counted
from envbuild.report.html.elements import EMPTY, Html, Limits, cut, element, join, text
from envbuild.report.html.tables import folded, mark, missing, section, table
from envbuild.report.model import BANDWIDTH, CheckRow, Report, TierRow

SIGNS = {"good": "pass", "bad": "fail", "open": "not-run"}


def head(report: Report, limits: Limits) -> Html:
    """Return the name, the description and the verdict."""
    verdict = report.verdict
    return element(
        "header",
        element("p", "envbuild report", class_="kicker"),
        element("h1", cut(report.name, limits.width)),
        element("p", cut(report.description, limits.width), class_="lead") if report.description else EMPTY,
        element(
            "div",
            element("p", mark(SIGNS[verdict.kind], verdict.title), class_="title"),
            element("p", cut(verdict.text, 2 * limits.width)),
            class_=f"verdict {verdict.kind}",
        ),
        element("ul", *(tier_tile(tier, limits) for tier in report.tiers), matrix_tile(report), class_="tiles"),
    )


def tier_status(tier: TierRow) -> str:
    """Return the status of a tier; one of which a part did not run has passed, and states it in words."""
    if tier.state.startswith(("passed", "partly")):
        return "pass"
    return "fail" if tier.state == "failed" else "not-run"


def tier_tile(tier: TierRow, limits: Limits) -> Html:
    """Return a tier: its name, its state, and what it needs."""
    status = tier_status(tier)
    state, _, reason = tier.state.partition(": ")
    words = state if state != "passed" else f"{tier.passed} passed"
    return element(
        "li",
        element("span", f"tier {tier.name}", class_="what"),
        mark(status, words),
        element("span", cut(reason or tier.needs, limits.width), class_="why"),
    )


def matrix_status(verdict: str) -> str:
    """Return the mark of a verdict of the matrix."""
    marks = {"conflict": "fail", "valid": "pass", "known": "pass", "conditional": "caution", "disputed": "caution"}
    return marks.get(verdict, "not-run")


def matrix_tile(report: Report) -> Html:
    """Return the answer of the version matrix as a tile."""
    if report.matrix is None:
        verdict, why, status = "not known", "no lock, no versions to compare", "not-run"
    else:
        verdict = report.matrix.verdict
        why = f"{counted(report.matrix.facts, 'fact')}, {counted(len(report.matrix.waived), 'waiver')}"
        status = matrix_status(verdict)
    return element(
        "li",
        element("span", "version matrix", class_="what"),
        mark(status, verdict),
        element("span", text(why), class_="why"),
    )


def faults(report: Report, limits: Limits) -> Html:
    """Return each fault with what repairs it."""
    if not report.faults:
        open_ = report.verdict.kind == "open"
        words = "None is known; see what was not run." if open_ else "None: no check failed."
        return section("faults", "Faults", element("p", words))
    items = [
        element(
            "li",
            element("p", mark("fail", "fault:"), " ", cut(one.text, 4 * limits.width), class_="title"),
            element("p", "in ", cut(one.where, limits.width), class_="why") if one.where else EMPTY,
            element("p", "fix: ", element("code", cut(one.fix, 2 * limits.width)), class_="fix") if one.fix else EMPTY,
        )
        for one in report.faults[: limits.rows]
    ]
    more = len(report.faults) - len(items)
    rest = element("p", f"and {counted(more, 'fault')} more: envbuild verify", class_="more") if more > 0 else EMPTY
    return section("faults", "Faults", element("ul", *items, class_="faults"), rest)


def not_run(report: Report, limits: Limits) -> Html:
    """Return what was not run, with the reason. Not run is never a pass."""
    rows: list[tuple[str, str, str]] = [
        (f"tier {tier.name}", tier.needs, tier.state.partition(": ")[2])
        for tier in report.tiers
        if tier_status(tier) == "not-run"
    ]
    rows += [(one.name, f"tier {one.tier}", one.detail) for one in report.checks if one.status == "not-run"]
    if not report.series:
        reason = report.missing.get(BANDWIDTH, "").removeprefix("not run: ")
        rows.append(("bandwidth", "nodes with GPUs or a fabric", reason))
    lead = "Nothing in this list is a pass."
    if not rows:
        return section("not-run", "Not run", element("p", "Everything was run."))
    return section(
        "not-run", "Not run", table("Not run", ("what", "needs", "reason"), rows, limits, quiet=True), lead=lead
    )


def checks(report: Report, limits: Limits) -> Html:
    """Return every check by tier: what was compared, and how long it took."""
    if not report.checks:
        reason = next((tier.state.partition(": ")[2] for tier in report.tiers), "")
        return section("checks", "Checks", missing(reason))
    tiers = dict.fromkeys(row.tier for row in report.checks)
    parts = []
    for tier in tiers:
        rows = [row for row in report.checks if row.tier == tier]
        failed = sum(row.status == "fail" for row in rows)
        words = f"Tier {tier}: {counted(len(rows), 'check')}, {failed} failed"
        found = table(
            f"Checks of tier {tier}",
            ("check", "result", "compared", "time"),
            rows_of(rows),
            limits,
            numbers=[3],
            quiet=True,
        )
        parts.append(folded(words, found, opened=failed > 0))
    return section(
        "checks", "Checks", join(parts), lead="Each compares the finished file with its lock, or runs its programs."
    )


def rows_of(rows: list[CheckRow]) -> list[tuple[str | Html, ...]]:
    """Return the rows of a table of checks."""
    return [(row.name, mark(row.status), row.detail, f"{row.seconds:.1f} s" if row.seconds else "") for row in rows]
