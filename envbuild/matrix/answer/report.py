"""Answers as text for users and as plain data for ``--json``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from envbuild.core.text import counted
from envbuild.matrix.answer.verdict import Answer
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.phrasing import Reason
from envbuild.matrix.solve.request import ask_place

WIDE = 150  # characters of a source in a text
MAX_SOURCES = 12  # sources that a text lists; --json has all


def answer_text(answer: Answer, matrix: FactTable, title: str) -> str:
    """Return the answer as text for users."""
    nothing_else = "; nothing to compare" if answer.verdict == "known" else ""
    lines = [f"{answer.verdict}{nothing_else}: {title}"]
    for conflict in answer.conflicts:
        lines += ["", text_with_place(answer, conflict.text, (ask.component for ask in reversed(conflict.asks)))]
        if conflict.fixes:
            lines.append(f"hint: {conflict.fixes[0]}")
            lines += [f"  or: {fix}" for fix in conflict.fixes[1:]]
        else:
            lines.append(f"hint: {conflict.hardware or 'no change of one or two of these was found to work'}")
        lines += [f"also: {text}" for text in conflict.also]
        if not conflict.minimal:
            lines.append("(found within the time limit; a smaller set may exist)")
    lines += [text_with_place(answer, f"unknown: {unknown.text}", unknown.of) for unknown in answer.unknown]
    if answer.nearest:
        lines.append(f"nearest known: {', or '.join(answer.nearest)}")
    lines += [f"note: {note}" for note in answer.notes]
    lines += caution_lines(answer)
    needs: dict[str, list[str]] = {}
    for one in answer.needs:
        needs.setdefault(one.text, []).append(one.fact)
    lines += [f"needs on the host: {what} [{', '.join(facts)}]" for what, facts in needs.items()]
    lines += [f"assumed: {one.text}" for one in answer.reasons if one.default]
    lines += [f"waived: {waiver.fact}, because {waiver.reason}" for waiver in answer.waived]
    if answer.chosen:
        lines += ["", *version_lines(answer, matrix)]
    cited = source_lines(answer)
    if cited:
        lines += ["", "facts:", *cited[:MAX_SOURCES]]
    if answer.facts:
        lines.append(f"{counted(len(answer.facts), 'fact')} in all; --json has them with their sources")
    if age := oldest_date(answer):
        lines.append(f"the oldest fact used was checked on {age}")
    return "\n".join(lines)


def brief_lines(answer: Answer) -> list[str]:
    """Return the obstacles, a text each, with its place in a spec and the nearest change; of an answer without
    obstacles the facts that need attention."""
    lines = []
    for conflict in answer.conflicts:
        hint = f"\nhint: {conflict.hint}" if conflict.hint else ""
        lines.append(
            f"{text_with_place(answer, conflict.text, (ask.component for ask in reversed(conflict.asks)))}{hint}"
        )
    lines += [text_with_place(answer, unknown.text, unknown.of) for unknown in answer.unknown]
    if lines and answer.nearest:
        lines.append(f"hint: {', or '.join(answer.nearest)}")
    if not lines:
        facts = dict.fromkeys(one.fact for one in (*answer.conditions, *answer.disputes, *answer.warnings))
        lines = [f"[{', '.join(facts)}]"] if facts else []
    return lines


def text_with_place(answer: Answer, text: str, names: Iterable[str]) -> str:
    """Return a text about components, with the place in the spec of the first of them that has one."""
    place = ask_place(names, answer.asks)
    return f"{place}: {text}" if place else text


def caution_lines(answer: Answer) -> list[str]:
    """Return what the user has to ensure, one line each."""
    lines = [f"condition: {one.condition or one.text} [{one.fact}]" for one in answer.conditions]
    lines += [f"disputed: {one.cited} ({one.source.type}: {one.source.where})" for one in answer.disputes]
    return lines + [f"warning: {one.cited}{f'; {one.hint}' if one.hint else ''}" for one in answer.warnings]


def version_lines(answer: Answer, matrix: FactTable) -> list[str]:
    """Return component, version and origin, one line each, aligned."""
    asked = {ask.component: ask for ask in answer.asks}
    rows = []
    for component in matrix.components:
        value = answer.chosen.get(component.name)
        if value is None or (component.hidden and component.name not in asked):
            continue
        ask, text = asked.get(component.name), component.shown.format(name=component.name, value=value)
        about = [one for one in answer.reasons if component.name in one.then]
        brought = next((one.fact for one in about if one.kind in ("provides", "requires")), "")
        origin = f"[{brought}]" if not ask else ask.by or ("picked" if ask.text != text else "asked")
        rows.append((component.name, value, origin))
    width = [max((len(row[at]) for row in rows), default=0) for at in (0, 1)]
    return [f"  {name:<{width[0]}}  {value:<{width[1]}}  {origin}" for name, value, origin in rows]


def source_lines(answer: Answer) -> list[str]:
    """Return each fact that is an obstacle, or that the user has to act on, with its source."""
    groups: Iterable[Iterable[Reason]]
    if answer.conflicts:
        groups = [conflict.reasons for conflict in answer.conflicts]
    else:
        groups = [answer.conditions, answer.disputes, answer.warnings, answer.needs]
    found = {one.fact: one for group in groups for one in group if not one.default}
    return [
        f"  [{one.fact}] {one.source.type}, {one.source.seen}: {_shorten(one.source.where)}" for one in found.values()
    ]


def _shorten(where: str) -> str:
    return where if len(where) <= WIDE else where[: WIDE - 1].rstrip() + "…"


def oldest_date(answer: Answer) -> str:
    """Return the date of the oldest fact used."""
    return min((one.source.seen for one in answer.used), default="")


def answer_data(answer: Answer) -> dict[str, Any]:
    """Return the answer as plain data."""

    def all_of(reasons: Iterable[Reason]) -> list[dict[str, Any]]:
        return [asdict(one) for one in reasons]

    return {
        "verdict": answer.verdict,
        "exit_code": answer.exit_code,
        "request": [
            {
                "component": ask.component,
                "constraint": ask.constraint.text,
                "text": ask.text,
                "by": ask.by,
                "where": ask.where,
            }
            for ask in answer.asks
        ],
        "chosen": dict(answer.chosen),
        "conflicts": [
            {
                "text": conflict.text,
                "also": list(conflict.also),
                "reasons": all_of(conflict.reasons),
                "requests": [ask.text for ask in conflict.asks],
                "minimal": conflict.minimal,
                "nearest": list(conflict.fixes),
                "beyond": conflict.hardware,
            }
            for conflict in answer.conflicts
        ],
        "unknown": [
            {
                "question": unknown.id,
                "of": list(unknown.of),
                "text": unknown.text,
                "where": ask_place(unknown.of, answer.asks),
            }
            for unknown in answer.unknown
        ],
        "conditions": all_of(answer.conditions),
        "disputes": all_of(answer.disputes),
        "warnings": all_of(answer.warnings),
        "needs": all_of(answer.needs),
        "reasons": all_of(answer.reasons),
        "superseded": all_of(answer.superseded),
        "nearest": list(answer.nearest),
        "notes": list(answer.notes),
        "waived": [{"fact": waiver.fact, "reason": waiver.reason} for waiver in answer.waived],
        "facts": {"used": list(answer.facts), "oldest": oldest_date(answer)},
    }
