"""Metadata of Python packages that no index has: wheels of a project, and projects in repositories.

It is read from their files, and no code of them runs: a build backend runs in the box of a unit alone. What a project
computes while it is built (a dynamic version, requirements of a setup.py) is therefore not known here.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.core.archive_damage import is_damage
from envbuild.core.bounded_tar import BoundedTarFile
from envbuild.core.errors import SpecError
from envbuild.core.plain_zip import PlainZipFile
from envbuild.core.text import printable
from envbuild.spec.local_wheels import LocalWheel
from envbuild.spec.pyproject import check_lines, check_python, load_toml, plain_requirements
from envbuild.spec.recipe import GitProject

LIMIT = 1 << 20  # bytes of a file with metadata
SETUPTOOLS = ("setuptools", "wheel")  # of a project without [build-system] (PEP 518)


@dataclass(frozen=True, slots=True)
class ProjectMetadata:
    """The statements of a package about itself: `requires` for its use (None: its build computes them), `build` for
    its build."""

    name: str
    version: str
    requires: tuple[str, ...] | None
    build: tuple[str, ...] = ()


def read_project(tarball: Path, project: GitProject, python: str) -> ProjectMetadata:
    """Return the metadata of a project in the tarball of its commit.

    Raises SpecError for a project that cannot be built here: no build backend, another name, another Python, no version
    that is known before the build.
    """
    what = f"the project '{project.name}' ({project.origin}@{project.ref})"
    files = read_files(tarball, project)
    if not files:
        where = f"{project.subfolder} of the repository" if project.subfolder else "the repository"
        raise SpecError(
            f"{what} has no build backend: {where} has neither pyproject.toml nor setup.py",
            "a project in another folder is named by #subdirectory=FOLDER at the end of the requirement",
        )
    try:
        texts = {name: content.decode() for name, content in files.items() if name != "setup.py"}
        for name, text in texts.items():
            check_lines(name, text)
        table = load_toml("pyproject.toml", texts.get("pyproject.toml", ""))
        old = configparser.ConfigParser(interpolation=None)
        old.read_string(texts.get("setup.cfg", ""))
    except (ValueError, RecursionError, configparser.Error) as error:
        raise SpecError(f"{what} has malformed metadata: {printable(error)}") from None
    stated = _table(table, "project")
    name = str(stated.get("name") or old.get("metadata", "name", fallback="") or project.name)
    if canonicalize_name(name) != canonicalize_name(project.name):
        raise SpecError(f"{what} is named '{printable(name)}' in its files", f"write {printable(name)} @ git+…")
    check_python(what, str(stated.get("requires-python", "")), python)
    version = str(stated.get("version", "")) or old.get("metadata", "version", fallback="")
    version = project.tag_version if not version or version.startswith(("attr:", "file:")) else version
    try:
        version = str(Version(version))
    except ValueError:
        raise SpecError(
            f"{what} computes its version while it is built, and its tag does not state one",
            "name a tag such as v1.2, or write a recipe",
        ) from None
    requires: tuple[str, ...] | None = None
    if stated and "dependencies" not in _texts(stated.get("dynamic")):
        requires = _texts(stated.get("dependencies"))
    elif old.has_option("options", "install_requires"):
        listed = old.get("options", "install_requires")
        requires = None if listed.startswith("file:") else tuple(line for line in listed.split("\n") if line.strip())
    build = _texts(_table(table, "build-system").get("requires")) or SETUPTOOLS
    return ProjectMetadata(
        str(canonicalize_name(name)),
        version,
        None if requires is None else plain_requirements(what, requires),
        plain_requirements(what, build),
    )


def read_wheel(path: Path, wheel: LocalWheel, python: str) -> ProjectMetadata:
    """Return the metadata of a wheel. Raises SpecError for one that is malformed or for another Python."""
    what = f"the wheel '{wheel.path}'"
    try:
        with PlainZipFile(path) as archive:
            (name,) = [
                item for item in archive.namelist() if item.count("/") == 1 and item.endswith(".dist-info/METADATA")
            ]
            with archive.open(name) as file:
                head = BytesHeaderParser().parsebytes(file.read(LIMIT))
        if (canonicalize_name(str(head["Name"])), Version(str(head["Version"]))) != (
            wheel.name,
            Version(wheel.version),
        ):
            raise ValueError(f"it contains {head['Name']} {head['Version']}")
    except Exception as error:
        if not is_damage(error):
            raise
        raise SpecError(f"{what} is not a valid wheel: {printable(error)}", "build it again") from None
    check_python(what, str(head["Requires-Python"] or ""), python)
    requires = plain_requirements(what, [str(text) for text in head.get_all("Requires-Dist", [])])
    return ProjectMetadata(wheel.name, wheel.version, requires)


def read_files(tarball: Path, project: GitProject) -> dict[str, bytes]:
    """Return the files with metadata in the tarball: name → content; empty for a folder that is not a project."""
    top = "/".join(filter(None, (project.file.removesuffix(".tar"), project.subfolder)))
    names = {f"{top}/{name}": name for name in ("pyproject.toml", "setup.cfg", "setup.py")}
    found: dict[str, bytes] = {}
    with BoundedTarFile.open(tarball, "r:") as archive:
        for member in archive:
            if member.name in names and member.isreg() and (file := archive.extractfile(member)):
                found[names[member.name]] = file.read(LIMIT)
    return found if {"pyproject.toml", "setup.py"} & found.keys() else {}


def _table(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
