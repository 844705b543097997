"""Releases of a package index that are newer than the facts."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.core.text import human_list
from envbuild.matrix.facts import version
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.index_releases import list_releases
from envbuild.net.python_index import PackageIndex


def newer_than_facts(index: PackageIndex, matrix: FactTable, components: Sequence[str] = ("torch",)) -> list[str]:
    """Return a sentence for each of `components` (named as on the index) that has newer releases there than the facts
    know. Raises InputError when the index does not answer."""
    notes = []
    for name in components:
        values = matrix.values[matrix.number[name]]
        known = [value for value in values if "+" not in value and not version.is_prerelease(value)]
        newest = max(known, key=version.key, default="0")
        there = [number for number in list_releases(index, name) if version.key(number) > version.key(newest)]
        if there:
            own = [fact.source.seen for fact in matrix.facts if fact.id.startswith(f"{name}.")]
            notes.append(
                f"the package index has {name} {human_list(there, 1)}; "
                f"the facts are of {max(own, default='no day')} and end at {newest}"
            )
    return notes
