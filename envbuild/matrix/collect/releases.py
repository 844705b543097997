"""Releases of a project on a package index: which wheels there are for which machine and Python, and what their
metadata asks for there.

File names: the binary distribution format (packaging.python.org); markers: PEP 508; tags: PEP 425."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envbuild.lock.index import Index, IndexFile, split_name
from envbuild.matrix import version
from envbuild.matrix.collect.derived import DerivedRow, Node, newest_first
from envbuild.matrix.collect.wheels import Metadata
from envbuild.target import MACHINES

Cell = tuple[str, str]  # (arch, python)
ANY = "any"  # a Python tag that fits every Python 3
NEWEST_PYTHON = 15  # 3.15: up to where wheels for the stable ABI are looked at
OLDEST_PYTHON = 6


@dataclass(frozen=True, slots=True)
class Build:
    """One Linux wheel. `pythons` as the matrix writes them (3.12, 3.13t), ``3.8+`` for the stable ABI (not of
    free-threaded Pythons), ANY of a wheel for every Python 3. `archs`: keys of MACHINES."""

    file: IndexFile
    version: str
    pythons: tuple[str, ...]
    archs: tuple[str, ...]
    build: tuple[int, str] | tuple[()] = ()


@dataclass(slots=True)
class Release:
    """One version: its Linux wheels, the best one of each (arch, python), and its sdist."""

    version: str
    wheels: dict[Cell, Build] = field(default_factory=dict)
    sdist: IndexFile | None = None
    yanked: bool = True  # every file of it was withdrawn (PEP 592)

    def builds(self) -> list[Build]:
        return list({build.file.name: build for build in self.wheels.values()}.values())


def releases(index: Index, project: str, oldest: str = "0", *, yanked: bool = False) -> dict[str, Release]:
    """Final releases from `oldest` on, newest first; those that were withdrawn only with `yanked`. Raises InputError.

    Local versions (``2.8.0+cu128``) are left out: they stand in other places' wheel folders, not on the index."""
    found: dict[str, Release] = {}
    for file in index.files(project):
        number = final(split_name(file.name)[1])
        if not number or (file.yanked and not yanked) or version.key(number) < version.key(oldest):
            continue
        release = found.setdefault(number, Release(number))
        release.yanked &= file.yanked
        if not file.name.endswith(".whl"):
            release.sdist = release.sdist or file
        elif build := parse(file, number):
            for arch in build.archs:
                for python in build.pythons:
                    other = release.wheels.get((arch, python))
                    if other is None or build.build > other.build:  # of two builds pip takes the higher build tag
                        release.wheels[arch, python] = build
    return {number: found[number] for number in newest_first(found) if found[number].wheels or found[number].sdist}


def final(text: str) -> str:
    """The version, when it is a final release without local label and of this project's own numbers; else nothing."""
    try:
        parsed = Version(text)
    except InvalidVersion:
        return ""
    return "" if parsed.is_prerelease or parsed.local or parsed.epoch else text


def parse(file: IndexFile, number: str) -> Build | None:
    """A Linux wheel of CPython 3; None for others."""
    try:
        _, _, build, tags = parse_wheel_filename(file.name)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    pythons, archs = set(), set()
    for tag in tags:
        archs |= {
            arch
            for arch, machine in MACHINES.items()
            if tag.platform == ANY or re.fullmatch(rf"(many)?linux.*_{machine}", tag.platform)
        }
        if match := re.fullmatch(r"cp3(\d+)", tag.interpreter):
            if tag.abi == "abi3":
                pythons.add(f"3.{match[1]}+")
            elif tag.abi == "none":
                pythons.add(f"3.{match[1]}")
            elif abi := re.fullmatch(rf"cp3{match[1]}m?(t?)", tag.abi):
                pythons.add(f"3.{match[1]}{abi[1]}")
        elif re.fullmatch(r"py3\d*", tag.interpreter):  # py39: 3.9 and all after it; Requires-Python says the same
            pythons.add(ANY)
    if not pythons or not archs:
        return None
    return Build(file, number, tuple(sorted(pythons)), tuple(sorted(archs)), build)


def needs(metadata: Metadata, arch: str, python: str, extra: str = "") -> dict[str, Requirement]:
    """Name → requirement of what applies on Linux, this machine and CPython. Lines that are none are left out."""
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
            if requirement.marker is None or requirement.marker.evaluate(environment):
                found[str(canonicalize_name(requirement.name))] = requirement
        except (InvalidRequirement, UndefinedEnvironmentName):
            continue
    return found


def cells(release: Release, requires_python: Mapping[str, str]) -> dict[Cell, Build]:
    """The wheels by (arch, python) with one Python each, within Requires-Python (file name → that)."""
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
    """What Requires-Python says; anything where it is none (uploads before PEP 440 was enforced)."""
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return SpecifierSet()


def constraint(wanted: SpecifierSet, *, labels: bool = False) -> str | list[str]:
    """A requirement's versions in the words of the matrix; nothing: any version.

    ``~=3.8.0`` is ``>=3.8.0,<3.9``; ``!=6.30.*`` splits a range into two. `labels`: a version without a local label
    stands for those with one too, as PEP 440 has it."""
    terms: list[str] = []
    holes: list[tuple[str, str]] = []
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
    if not holes:
        return ",".join(terms) or "*"
    found, low = [], ""
    for begin, end in [*sorted(holes, key=lambda hole: version.key(hole[0])), ("", "")]:
        if not begin or not low or version.key(low) < version.key(begin):
            kept = [term for term in terms if not (low and term.startswith(">") and _below(term, low))]
            found.append(",".join([*([f">={low}"] if low else []), *kept, *([f"<{begin}"] if begin else [])]))
        low = end
    return found


def _below(term: str, low: str) -> bool:
    return version.key(term.lstrip(">=")) <= version.key(low)


def _next(prefix: str) -> str:
    """The first version after all that begin with `prefix`: 3.9 for 3.8."""
    head, dot, last = prefix.rpartition(".")
    return f"{head}{dot}{int(last) + 1}"


def _order(specifier: Specifier) -> tuple[int, str]:
    return (">=", ">", "==", "===", "~=", "!=", "<", "<=").index(specifier.operator), specifier.version


def rows(
    when: Mapping[str, Node], cells: Mapping[Cell, Mapping[str, Node] | None], note: Mapping[Cell, str]
) -> list[DerivedRow]:
    """Rows for one release from what holds in each (arch, python), with as few conditions as say the same.

    A value None gives no row. The note of a row is the digest of all notes of the cells that it stands for."""
    archs = sorted({arch for arch, _ in cells})
    if len({_text(value) for value in cells.values()}) == 1:
        groups: list[tuple[dict[str, Node], list[Cell]]] = [({}, sorted(cells))]
    else:
        groups = []
        for arch in archs:
            own = [cell for cell in sorted(cells) if cell[0] == arch]
            by_value: dict[str, list[Cell]] = {}
            for cell in own:
                by_value.setdefault(_text(cells[cell]), []).append(cell)
            for members in by_value.values():
                pythons: dict[str, Node] = {}
                if len(by_value) > 1:
                    pythons = {"python": oldest_first(python for _, python in members)}
                groups.append(({"arch": arch} | pythons, members))
    found = []
    for conditions, members in groups:
        then = cells[members[0]]
        if then is not None:
            found.append(DerivedRow({**when, **conditions}, then, digest(note[cell] for cell in members)))
    return found


def oldest_first(values: Iterable[str]) -> list[str]:
    return newest_first(values)[::-1]


def digest(digests: Iterable[str]) -> str:
    """One short digest for several."""
    different: Sequence[str] = sorted(set(digests))
    if len(different) > 1:
        different = [hashlib.sha256("\n".join(different).encode()).hexdigest()]
    return f"sha256 {different[0][:12]}" if different and different[0] else ""


def _text(value: object) -> str:
    return repr(value)
