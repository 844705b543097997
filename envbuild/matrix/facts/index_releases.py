"""Releases of a project on a package index: which wheels there are for which machine and Python.

File names: the binary distribution format (packaging.python.org); tags: PEP 425."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import product

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from envbuild.core.distributions import MACHINES
from envbuild.matrix.facts import version
from envbuild.matrix.facts.version import newest_first
from envbuild.net.python_index import IndexFile, PackageIndex, split_name

Cell = tuple[str, str]  # (arch, python)
ANY = "any"  # a Python tag that fits every Python 3


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

    def add(self, build: Build) -> None:
        """Add a wheel; of two builds pip takes the higher build tag."""
        for cell in product(build.archs, build.pythons):
            other = self.wheels.get(cell)
            if other is None or build.build > other.build:
                self.wheels[cell] = build

    def builds(self) -> list[Build]:
        return list({build.file.name: build for build in self.wheels.values()}.values())


def list_releases(index: PackageIndex, project: str, oldest: str = "0", *, yanked: bool = False) -> dict[str, Release]:
    """Return final releases from `oldest` on, newest first; withdrawn ones only with `yanked`. Raise InputError.

    Local versions (``2.8.0+cu128``) are left out: they are in wheel folders elsewhere, not on the index."""
    found: dict[str, Release] = {}
    for file in index.files(project):
        number = final_version(split_name(file.name)[1])
        if not number or (file.yanked and not yanked) or version.key(number) < version.key(oldest):
            continue
        release = found.setdefault(number, Release(number))
        release.yanked &= file.yanked
        if not file.name.endswith(".whl"):
            release.sdist = release.sdist or file
        elif build := parse_wheel_file(file, number):
            release.add(build)
    return {number: found[number] for number in newest_first(found) if found[number].wheels or found[number].sdist}


def final_version(text: str) -> str:
    """Return the version if it is a final release without local label and of this project's own numbers, else ""; also
    for one that only PEP 440 reads, such as ``2.8.0post_5``, or of more than 60 digits."""
    try:
        parsed = Version(text)
        version.parse(text)
    except ValueError:
        return ""
    return "" if parsed.is_prerelease or parsed.local or parsed.epoch else text


def parse_wheel_file(file: IndexFile, number: str) -> Build | None:
    """Return the build of a Linux wheel of CPython 3; None for others."""
    try:
        _, _, build, tags = parse_wheel_filename(file.name)
    except ValueError:  # also a number that Python does not read
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
        elif re.fullmatch(r"py3\d*", tag.interpreter):  # py39: 3.9 and all after it; Requires-Python has the same bound
            pythons.add(ANY)
    if not pythons or not archs:
        return None
    return Build(file, number, tuple(sorted(pythons)), tuple(sorted(archs)), build)
