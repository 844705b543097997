"""The requirements of releases on each machine and Python, as rows with as few conditions as possible.

Markers: PEP 508."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from packaging.requirements import Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name

from envbuild.core.distributions import MACHINES
from envbuild.matrix.collect.fact_writer import DerivedRow, FlowNode
from envbuild.matrix.collect.remote_wheel import Metadata
from envbuild.matrix.facts import version
from envbuild.matrix.facts.index_releases import ANY, Build, Cell, Release
from envbuild.matrix.facts.version import oldest_first

NEWEST_PYTHON = 15  # 3.15: up to where wheels for the stable ABI count
OLDEST_PYTHON = 6
Hole = tuple[str, str]  # first version that is excluded, first one after those


def find_requirements(metadata: Metadata, arch: str, python: str, extra: str = "") -> dict[str, Requirement]:
    """Return name → requirement of what applies on Linux, this machine and CPython. Invalid lines are left out."""
    number = python.rstrip("t")
    environment = {
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": MACHINES[arch],
        "platform_release": "",
        "platform_version": "",
        "python_version": number,
        "python_full_version": f"{number}.0",
        "implementation_name": "cpython",
        "implementation_version": f"{number}.0",
        "platform_python_implementation": "CPython",
        "extra": extra,
    }
    found: dict[str, Requirement] = {}
    for line in metadata.requires:
        try:
            requirement = Requirement(line)
            if not has_matrix_versions(requirement.specifier):
                continue
            if requirement.marker is None or requirement.marker.evaluate(environment):
                found[str(canonicalize_name(requirement.name))] = requirement
        # no requirement, an unknown name in a marker, or a number that Python does not read; a name that is not in the
        # environment is a KeyError of newer packaging
        except (ValueError, KeyError):
            continue
    return found


def release_cells(release: Release, requires_python: Mapping[str, str]) -> dict[Cell, Build]:
    """Return the wheels by (arch, python) with one Python each, within Requires-Python (file name → that)."""
    found: dict[Cell, Build] = {}
    for (arch, python), build in release.wheels.items():
        if python == ANY or python.endswith("+"):
            first = OLDEST_PYTHON if python == ANY else int(python.removesuffix("+").partition(".")[2])
            allowed = specifiers(requires_python[build.file.name])
            pythons = [f"3.{minor}" for minor in range(first, NEWEST_PYTHON + 1) if allowed.contains(f"3.{minor}.99")]
        else:
            pythons = [python]
        for one in pythons:
            found.setdefault((arch, one), build)
    return found


def specifiers(text: str) -> SpecifierSet:
    """Return the specifiers of Requires-Python; any version where it is invalid (uploads before PEP 440 was
    enforced)."""
    try:
        found = SpecifierSet(text)
    except ValueError:
        return SpecifierSet()
    return found if has_matrix_versions(found) else SpecifierSet()


def has_matrix_versions(wanted: SpecifierSet) -> bool:
    """Return whether the matrix reads every version of a requirement: not ``===foo``, an epoch, 5,000 digits. A fact
    with another one could be written, and not be read again."""
    try:
        for specifier in wanted:
            version.parse(specifier.version.removesuffix(".*"))
    except ValueError:
        return False
    return True


def specifier_constraint(wanted: SpecifierSet, *, labels: bool = False) -> str | list[str]:
    """Return a requirement's versions in the syntax of the matrix; nothing: any version.

    ``~=3.8.0`` is ``>=3.8.0,<3.9``; ``!=6.30.*`` splits a range into two. `labels`: a version without a local label
    includes those with one, as in PEP 440."""
    terms, holes = split_specifiers(wanted, labels)
    return cut_holes(terms, holes) if holes else ",".join(terms) or "*"


def split_specifiers(wanted: SpecifierSet, labels: bool) -> tuple[list[str], list[Hole]]:
    """Return the terms of a requirement, and the ranges that it excludes."""
    terms: list[str] = []
    holes: list[Hole] = []
    for specifier in sorted(wanted, key=_order):
        operator, number = specifier.operator, specifier.version
        prefix = number.removesuffix(".*")
        if operator == "~=":
            terms += [f">={number}", f"<{_next(number.rpartition('.')[0])}"]
        elif prefix != number and operator == "==":
            terms.append(prefix)
        elif prefix != number:
            holes.append((prefix, _next(prefix)))
        elif operator in ("==", "===") and labels and "+" not in number:
            terms.append(number)
        else:
            terms.append(f"{'==' if operator == '===' else operator}{number}")
    return terms, holes


def cut_holes(terms: Sequence[str], holes: Sequence[Hole]) -> list[str]:
    """Return the ranges that `terms` describe between the `holes`."""
    found, low = [], ""
    for begin, end in [*sorted(holes, key=lambda hole: version.key(hole[0])), ("", "")]:
        if not begin or not low or version.key(low) < version.key(begin):
            inner = [term for term in terms if not (low and term.startswith(">") and _below(term, low))]
            found.append(",".join([*([f">={low}"] if low else []), *inner, *([f"<{begin}"] if begin else [])]))
        low = end
    return found


def _below(term: str, low: str) -> bool:
    return version.key(term.lstrip(">=")) <= version.key(low)


def _next(prefix: str) -> str:
    """Return the first version after all that begin with `prefix`: 3.9 for 3.8."""
    head, dot, last = prefix.rpartition(".")
    return f"{head}{dot}{int(last) + 1}"


def _order(specifier: Specifier) -> tuple[int, str]:
    return (">=", ">", "==", "===", "~=", "!=", "<", "<=").index(specifier.operator), specifier.version


def requirement_rows(
    when: Mapping[str, FlowNode], cells: Mapping[Cell, Mapping[str, FlowNode] | None], note: Mapping[Cell, str]
) -> list[DerivedRow]:
    """Return rows for one release from what holds in each (arch, python), with as few conditions as possible.

    A value None has no row. The note of a row is the digest of all notes of its cells."""
    archs = sorted({arch for arch, _ in cells})
    if len({_text(value) for value in cells.values()}) == 1:
        groups: list[tuple[dict[str, FlowNode], list[Cell]]] = [({}, sorted(cells))]
    else:
        groups = []
        for arch in archs:
            own = [cell for cell in sorted(cells) if cell[0] == arch]
            by_value: dict[str, list[Cell]] = {}
            for cell in own:
                by_value.setdefault(_text(cells[cell]), []).append(cell)
            for members in by_value.values():
                pythons: dict[str, FlowNode] = {}
                if len(by_value) > 1:
                    pythons = {"python": oldest_first(python for _, python in members)}
                groups.append(({"arch": arch} | pythons, members))
    found = []
    for conditions, members in groups:
        then = cells[members[0]]
        if then is not None:
            found.append(DerivedRow({**when, **conditions}, then, digest_note(note[cell] for cell in members)))
    return found


def digest_note(digests: Iterable[str]) -> str:
    """Return one short digest for several."""
    different: Sequence[str] = sorted(set(digests))
    if len(different) > 1:
        different = [hashlib.sha256("\n".join(different).encode()).hexdigest()]
    return f"sha256 {different[0][:12]}" if different and different[0] else ""


def _text(value: object) -> str:
    return repr(value)
