"""Answers of ``envbuild check``, for a user or a program: one as a whole, or several as a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from envbuild.core.errors import Finding
from envbuild.matrix.answer.report import answer_data, answer_text, brief_lines
from envbuild.matrix.answer.verdict import VERDICTS, Answer
from envbuild.matrix.facts.fact_table import FactTable


@dataclass(frozen=True, slots=True)
class CheckResult:
    """An answer for a user or a program.

    image: the name of the image ("" for words).
    refusals: why its recipes are incompatible with it, reported instead of the facts.
    why: a component; because: what prevents a newer version of it.
    """

    matrix: FactTable
    answer: Answer
    title: str
    image: str = ""
    refusals: tuple[Finding, ...] = ()
    why: str = ""
    because: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        return "conflict" if self.refusals else self.answer.verdict

    @property
    def code(self) -> int:
        """The exit code."""
        return VERDICTS[self.verdict]

    @property
    def data(self) -> dict[str, Any]:
        """The answer for ``--json``."""
        refusals = [{"text": one.message, "where": one.where, "hint": one.hint} for one in self.refusals]
        head = {"image": self.image, "verdict": self.verdict, "exit_code": self.code, "refusals": refusals}
        why = {"why": {"component": self.why, "because": list(self.because)}} if self.why else {}
        return {**answer_data(self.answer), **head, **why}

    @property
    def text(self) -> str:
        """The whole answer as text."""
        if self.refusals:
            return "\n".join([f"conflict: {self.title}", *(f"\n{one}" for one in self.refusals)])
        return "\n".join(
            [answer_text(self.answer, self.matrix, self.title), *([""] if self.why else []), *self.because]
        )

    def line(self, width: int) -> str:
        """Return the verdict as one line, and under it what prevents the image.

        width: characters of the longest image name in the list.
        """
        head = f"{self.verdict:<11}  {self.image:<{width}}"
        found = [str(one) for one in self.refusals] or brief_lines(self.answer)
        if self.code:
            return "\n".join([head.rstrip(), *(f"  {row}" for one in found for row in one.splitlines())])
        return "  ".join([head, *found]).rstrip()


def exit_code(results: Sequence[CheckResult]) -> int:
    """Return the exit code for several answers: a conflict counts before an unknown combination."""
    return next((code for code in (3, 9) if any(result.code == code for result in results)), 0)


def overview(results: Sequence[CheckResult]) -> str:
    """Return the answers as one line each, what prevents an image below it, and the summary."""
    width = max(len(result.image) for result in results)
    return "\n".join([*(result.line(width) for result in results), "", summary(results)])


def summary(results: Sequence[CheckResult]) -> str:
    """Return the number of images of each verdict, and the command that shows more."""
    counts = {verdict: sum(one.verdict == verdict for one in results) for verdict in VERDICTS}
    kinds = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return f"{len(results)} images: {kinds}; facts of one: envbuild check NAME"
