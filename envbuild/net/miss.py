"""Reasons why a place did not provide a file, as values, so that no code parses the text of a message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class MissKind(Enum):
    """Kind of a miss."""

    ABSENT = "absent"  # the place answered that it does not have it
    REFUSED = "refused"  # it answered with a refusal, or its file cannot be used
    UNAUTHORIZED = "unauthorized"  # it requires a login, or another one
    RATE_LIMITED = "rate-limited"  # it received too many requests
    MISMATCH = "mismatch"  # its content has another digest
    UNREACHABLE = "unreachable"  # it did not answer, or not properly


@dataclass(frozen=True, slots=True)
class Miss:
    """A place (as messages show it) that did not provide something, and the reason as text (`detail`). `hint` is a
    command that would help, if one exists."""

    place: str
    kind: MissKind
    detail: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.detail}"


def all_absent(misses: Iterable[Miss]) -> bool:
    """Return whether at least one place was tried, and each answered that it does not have the file."""
    kinds = {miss.kind for miss in misses}
    return kinds == {MissKind.ABSENT}
