"""The part of a report about the version matrix: its answer, or what a lock recorded of it."""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.core.errors import Finding
from envbuild.lock.model import Lock
from envbuild.matrix.answer.report import oldest_date
from envbuild.matrix.answer.verdict import Answer
from envbuild.matrix.solve.phrasing import Reason
from envbuild.report.model import Cited, Fault, MatrixPart, Waived
from envbuild.spec.target import Target

MATRIX = "version matrix"


def matrix_part(
    answer: Answer, title: str, refusals: Iterable[Finding] = (), target: Target | None = None
) -> MatrixPart:
    """Return the answer about an image. refusals: of its recipes, which make it a conflict. target: whose driver is a
    need of the image on the host."""
    refused = tuple(Cited("", "conflict", finding.message) for finding in refusals)
    groups = (
        ("condition", answer.conditions),
        ("dispute", answer.disputes),
        ("warning", answer.warnings),
        ("need", answer.needs),
    )
    cited = [cited_row(reason, kind) for kind, reasons in groups for reason in reasons]
    if target and target.driver and not any("driver" in reason.text for reason in answer.needs):
        source = f"target {target.name}: {target.driver_because}"
        cited.append(Cited("driver", "need", f"driver>={target.driver}", source))
    conflicts = [cited_row(one, "conflict") for conflict in answer.conflicts for one in conflict.reasons]
    unknown = [Cited("", "unknown", one.text) for one in answer.unknown]
    mentioned = {row.fact for row in (*cited, *conflicts)}
    others = [cited_row(one, "fact") for one in answer.reasons if one.fact not in mentioned]
    return MatrixPart(
        verdict="conflict" if refused else answer.verdict,
        title=title,
        cited=tuple(dict.fromkeys([*refused, *conflicts, *unknown, *cited, *others])),
        waived=tuple(Waived(waiver.fact, waiver.reason) for waiver in answer.waived),
        facts=len(answer.facts),
        oldest=oldest_date(answer),
    )


def cited_row(reason: Reason, kind: str) -> Cited:
    """Return one reason as a row. Of a condition the condition is the text."""
    text = reason.condition if kind == "condition" and reason.condition else reason.text
    return Cited(reason.fact, kind, text, f"{reason.source.type}: {reason.source.where}", reason.source.seen)


def locked_matrix_part(lock: Lock) -> MatrixPart:
    """Return what a lock recorded: the facts that its versions rested on, and the waivers. Nothing is compared."""
    return MatrixPart(
        verdict="recorded",
        title=f"{lock.image}, on the day of its lock; the facts are not compared again",
        cited=tuple(Cited(fact, "fact", "a fact that the locked versions rest on") for fact in lock.facts),
        waived=tuple(Waived(waiver.get("fact", ""), waiver.get("reason", "")) for waiver in lock.waivers),
        facts=len(lock.facts),
    )


def matrix_faults(answer: Answer, refusals: Iterable[Finding], command: str) -> tuple[Fault, ...]:
    """Return a fault for each conflict and for each combination that no fact covers. command: checks the image."""
    refused = tuple(Fault(one.message, one.where or MATRIX, one.hint) for one in refusals)
    if refused:
        return refused
    conflicts = (Fault(one.text, MATRIX, one.hint or command) for one in answer.conflicts)
    nearest = ", or ".join(answer.nearest) or command
    return (*conflicts, *(Fault(one.text, MATRIX, nearest) for one in answer.unknown))
