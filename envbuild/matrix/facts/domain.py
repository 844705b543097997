"""The domain of the facts: the versions that they know. One outside of it is unknown, even where open rows match it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envbuild.matrix.facts import version
from envbuild.matrix.facts.atoms import pick_penalty
from envbuild.matrix.facts.fact_table import FactTable

# A package of a known version is that version: 2.19.3-1+cuda12.2, 1.18.1+ds-2, 44.0-2+b1. A label of Python's
# (2.8.3+cu12torch2.8) names a build of its own, which no fact knows; a
# commit (2.9.0.2.12.22436+0f1dac25 of Neuron) does not.
LOCAL_LABEL = re.compile(r"[^-+]+\+(?!ds|dfsg|really|b\d|deb\d|[0-9a-f]{7,40}$)[^-]*")
OF_CUDA = re.compile(r".+\+cuda(\d+)\.\d+")  # of NVIDIA's packages
OLDEST, NEWEST = "0", "99999"  # older and newer than every version that there is


def listed_versions(matrix: FactTable, number: int) -> list[str]:
    """Return the versions of a component that the facts list, oldest first; plain releases where there are any."""
    added = matrix.added.get(number, 0)
    listed = matrix.values_of(number, matrix.full[number] & ~added)
    plain = [value for value in listed if not pick_penalty(value)]
    return version.oldest_first(plain or listed)


def newest_packages(matrix: FactTable) -> dict[str, str]:
    """Return Python package → the newest version that the facts list of its component; plain releases alone."""
    found: dict[str, str] = {}
    for number, component in enumerate(matrix.components):
        known = listed_versions(matrix, number) if component.kind == "version" and not component.newer else []
        if known and not pick_penalty(known[-1]) and re.fullmatch(r"\d+(\.\d+)*(\.post\d+)?", known[-1]):
            found |= dict.fromkeys(component.packages or (component.name,), known[-1])
    return found


def outside_reason(matrix: FactTable, number: int, value: str) -> str:
    """Return why a version that the facts do not list is outside of what they know; "" for one that is not."""
    component = matrix.components[number]
    known = listed_versions(matrix, number) if component.kind == "version" else []
    if not component.labels and re.split(r"[-+]", value)[0] in known:
        return f"no fact knows {component.name} {value}: a build of its own" if LOCAL_LABEL.fullmatch(value) else ""
    if not known or "+" in value or not version.is_comparable(value):
        return f"no fact knows {component.name} {value}"
    oldest, newest = known[0], known[-1]
    if version.public_key(value) > version.public_key(newest):
        where = "" if component.newer else f"newest known is {newest}"
    elif version.public_key(value) < version.public_key(oldest):
        where = f"oldest known is {oldest}"
    else:
        where = "" if component.between else f"{nearest_text(known, value)}; newest known is {newest}"
    return f"no fact knows {component.name} {value}: {where}" if where else ""


def other_cuda_reason(matrix: FactTable, assignment: Sequence[int], number: int) -> str:
    """Return why a package that NVIDIA built for a CUDA (2.28.9-1+cuda13.0) is not known in an assignment: nothing in
    it has that CUDA, so that no fact is about this build; "" for others."""
    value = matrix.value(number, assignment[number]) or ""
    if not (label := OF_CUDA.fullmatch(value)):
        return ""
    places = [matrix.number[name] for name in ("cuda", "torch-cuda") if name in matrix.number]
    there = [found for place in places if (found := matrix.value(place, assignment[place]))]
    if any(found.partition(".")[0] == label[1] for found in there):
        return ""
    name = matrix.components[number].name
    beside = f"beside CUDA {there[0]}" if there else f"without a CUDA: name it too, such as cuda={label[1]}"
    return f"no fact knows {name} {value}, which is built for CUDA {label[1]}, {beside}"


def nearest_text(known: list[str], value: str) -> str:
    """Return the known versions on both sides of one that is between them."""
    place = version.key(value)
    below = [one for one in known if version.key(one) <= place][-1:]
    above = [one for one in known if version.key(one) > place][:1]
    return f"known beside it {'are' if below and above else 'is'} {' and '.join(below + above)}"


def newer_note(matrix: FactTable, number: int, value: str) -> str:
    """Return a note for a version that is newer than all that the facts list; "" for others."""
    component = matrix.components[number]
    if component.kind != "version" or not version.is_comparable(value):
        return ""
    known = listed_versions(matrix, number)
    if not known or version.public_key(value) <= version.public_key(known[-1]):
        return ""
    about = {at for at, atom in enumerate(matrix.atoms) if atom.component == number}
    rows = (line for line in matrix.rows if not about.isdisjoint(line.when) or not about.isdisjoint(line.then))
    seen = max((matrix.facts[line.fact].source.seen for line in rows), default="")
    date = f" and are of {seen}" if seen else ""
    statement = f"; {component.newer}" if component.newer else ""
    return f"{component.name} {value} is newer than the facts, which end at {known[-1]}{date}{statement}"
