"""The nodes that ``envbuild doctor --gather`` expects: names, as Slurm writes them (``n[01-16,20],login``)."""

from __future__ import annotations

import re

from envbuild.core.errors import SpecError
from envbuild.core.yaml_reader import short

NAME = r"[A-Za-z0-9._-]*"
PART = re.compile(rf"({NAME})\[([0-9,-]+)\]({NAME})|({NAME})")
MOST = 20_000
HINT = "type --nodes NAME,NAME or --nodes 'n[01-16]', as in: squeue -o %N"


def node_names(text: str) -> tuple[str, ...]:
    """Return the names of a list of nodes. Raises SpecError for a text that is not one."""
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text) if text else ():
        found = PART.fullmatch(part.strip())
        if not found or not part.strip():
            raise SpecError(f"--nodes {short(text)} is not a list of nodes", hint=HINT)
        numbers = expand(found[2], text) if found[2] else ("",)
        names += [f"{found[1] or ''}{number}{found[3] or ''}" or found[4] for number in numbers]
        if len(names) > MOST:
            raise SpecError(f"--nodes names more than {MOST} nodes", hint="compare the nodes of one kind alone")
    return tuple(dict.fromkeys(names))


def expand(ranges: str, text: str) -> tuple[str, ...]:
    """Return the numbers of ``01-03,07``, with their zeros."""
    found: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) - int(first) not in range(MOST):
            raise SpecError(f"--nodes {short(text)} is not a list of nodes", hint=HINT)
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]
    return tuple(found)
