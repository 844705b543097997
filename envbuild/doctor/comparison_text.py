"""The comparison of several nodes as text: the lines of each node together, alike parts of it on one line."""

from __future__ import annotations

import re

from .model import one_line
from .outliers import Comparison, Outlier

PART = re.compile(r"\[([^\]]*)\]")  # the name of a part of a list: a GPU, a port


def comparison_text(found: Comparison) -> str:
    """Return the comparison as text."""
    lines = [f"{name}: not compared: {why}" for name, why in sorted(found.unread.items())]
    lines += [f"{name}: no answer" for name in found.missing]
    for node in found.nodes:
        groups: dict[tuple[str, ...], list[Outlier]] = {}
        for one in found.outliers:
            if one.node == node:
                groups.setdefault((PART.sub("[]", one.fact), one.value, one.usual, str(one.count)), []).append(one)
        lines += [f"{node}: {group_text(group, len(found.nodes))}" for group in groups.values()]
        for title, checks in (("failed", found.failures), ("minor", found.minor)):
            if names := checks.get(node):
                lines.append(f"{node}: {title}: {', '.join(dict.fromkeys(names))}")
    without = f", {len(found.missing)} without an answer" if found.missing else ""
    verdict = "all equal" if found.equal else "not all equal"
    printed = [one_line(line) for line in lines]  # texts of files that others may have written
    return "\n".join([*printed, f"{len(found.nodes)} nodes compared{without}: {verdict}"])


def group_text(group: list[Outlier], nodes: int) -> str:
    """Return a difference of one node, of one part or of several parts alike."""
    one = group[0]
    fact = one.fact if len(group) == 1 else PART.sub(f"[{len(group)} alike: {parts(group)}]", one.fact, count=1)
    if not one.usual:
        usual = "no value has a majority"
    elif one.usual == "nothing":
        usual = f"{one.count} of {nodes} nodes have none"
    elif one.value == "nothing":
        usual = f"{one.count} of {nodes} nodes have it"
    else:
        usual = f"{one.usual} on {one.count} of {nodes} nodes"
    value = "is missing" if one.value == "nothing" else "is there" if one.value == "there" else f"is {one.value}"
    return f"{fact} {value} ({usual})"


def parts(group: list[Outlier]) -> str:
    """Return the names of the parts, of many the first and the last."""
    names = [found[1] if (found := PART.search(one.fact)) else one.fact for one in group]
    return ", ".join(names) if len(names) < 4 else f"{names[0]} … {names[-1]}"
