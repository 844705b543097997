"""The parts of a conflict: the requirements that take part in it, and its rows as reasons."""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.matrix.facts.atoms import PRESENT_KINDS
from envbuild.matrix.solve.encoding import Core
from envbuild.matrix.solve.phrasing import Reason, row_reason
from envbuild.matrix.solve.query import Query
from envbuild.matrix.solve.request import Ask


def needed_asks(case: Query, core: Core) -> tuple[Ask, ...]:
    """Return the requirements of a conflict, without those that only decide a default (a GPU, of the architecture)."""
    matrix, about = case.matrix, set[str]()
    for row in core.rows:
        if not matrix.fact(row).default:
            about |= matrix.then(row).keys()
            about |= {name for name, text in matrix.when(row).items() if "-" not in text.split(" or ")}
    asks = case.involved(core)
    return tuple(ask for ask in asks if ask.component in about) or asks


def core_reasons(case: Query, core: Core, known: Mapping[str, str]) -> tuple[Reason, ...]:
    """Return the rows of a conflict as reasons, the obstacle first. A component whose definition is among them has that
    value."""
    matrix = case.matrix
    whole = dict(known)
    for row in core.rows:
        if matrix.fact(row).kind in PRESENT_KINDS and all(name in whole for name in matrix.when(row)):
            whole |= {name: text for name, text in matrix.then(row).items() if name not in whole and " or " not in text}
    return tuple(row_reason(matrix, group[0], whole, len(group)) for group in reversed(core.groups))
