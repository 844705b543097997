"""Why a place did not give what it was asked for: a value, so that nobody has to read the words that people see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class MissKind(Enum):
    """What a miss is."""

    ABSENT = "absent"  # the place answered that it does not have it
    REFUSED = "refused"  # it answered that it will not give it, or what it has cannot be used
    UNAUTHORIZED = "unauthorized"  # it wants a login, or another one
    RATE_LIMITED = "rate-limited"  # it was asked too often
    MISMATCH = "mismatch"  # it has other content than was asked for
    UNREACHABLE = "unreachable"  # it did not answer, or not properly


@dataclass(frozen=True, slots=True)
class Miss:
    """A place (as messages show it) that did not give something, and why in words. `hint` is a command that would
    help, where there is one."""

    place: str
    kind: MissKind
    detail: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.detail}"


def all_absent(misses: Iterable[Miss]) -> bool:
    """Return whether places were asked, and each answered that it does not have it."""
    kinds = {miss.kind for miss in misses}
    return kinds == {MissKind.ABSENT}
