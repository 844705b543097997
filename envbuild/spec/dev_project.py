"""Project folders of a spec (`dev:`): code of the user, which `run` mounts and `make` copies into the image.

    dev: ../mytrainer            # or a list; relative to the folder of the spec

The folder has a pyproject.toml with a static [project] table, or plain Python. Its content is not locked: an edit of
it does not outdate the lock. Its dependencies are requirements of the image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import Finding, SpecError
from envbuild.core.text import printable
from envbuild.core.yaml_nodes import Node, Scalar, relative_path
from envbuild.core.yaml_reader import Reader, short
from envbuild.spec.dev_metadata import NAME, DevMetadata, read_metadata
from envbuild.spec.trust import check_dev_folder

PLACE = "/opt/dev"  # in the image, with a folder for each project


@dataclass(frozen=True, slots=True)
class DevProject:
    """A project folder: `name` is normalized (PEP 503), `path` as the spec has it, `where` its place there."""

    name: str
    path: str
    folder: Path
    where: str
    metadata: DevMetadata

    @property
    def place(self) -> str:
        """Return its folder in the image."""
        return f"{PLACE}/{self.name}"

    @property
    def import_path(self) -> str:
        """Return the folder in the image that Python searches."""
        return f"{self.place}/{self.metadata.root}".rstrip("/")

    @property
    def scripts(self) -> tuple[str, ...]:
        """Return the names of its programs."""
        return tuple(self.metadata.programs)

    @property
    def label(self) -> str:
        """Return its name and version, for messages."""
        return f"{self.name} {self.metadata.version}".strip()


@dataclass(frozen=True, slots=True)
class DevContent:
    """The content of a project folder: the digest and the size of its canonical tar (`envbuild.lock.dev_content`)."""

    project: DevProject
    sha256: str
    size: int


def read_dev_projects(reader: Reader, node: Node, folder: Path, python: str) -> tuple[DevProject, ...]:
    """Return the projects of the key `dev`; `folder` is that of the spec which has it."""
    nodes = (node,) if isinstance(node, Scalar) and node.kind != "null" else reader.items(node, "dev")
    found: list[DevProject] = []
    for item in nodes:
        path = reader.text(item, "dev")
        if path is None:
            continue
        try:
            found.append(read_dev_project(path, folder, python, item.where))
        except SpecError as error:
            reader.findings += error.at(item.where).findings
    for finding in check_together(found):
        reader.wrong(finding.where, finding.message, finding.hint)
    return tuple(found)


def read_dev_project(path: str, folder: Path, python: str, where: str) -> DevProject:
    """Return the project in the folder `path`. Raises SpecError."""
    what = f"the project '{short(path)}'"
    if not path or path.startswith("~") or "\0" in path:
        hint = "write a path relative to the folder of the spec: ../mytrainer"
        raise SpecError(f"'dev' cannot be '{short(path)}'", hint)
    place = folder / path
    try:
        found = place.resolve(strict=True)
        is_folder = found.is_dir()
    except FileNotFoundError:
        hint = "a path is relative to the folder of the spec"
        raise SpecError(f"{what} does not exist: there is no folder {printable(relative_path(place))}", hint) from None
    except (OSError, RuntimeError) as error:
        raise SpecError(f"{what} cannot be read: {error}") from None
    if not is_folder:
        hint = "name its folder; a wheel belongs into python-packages" if found.suffix == ".whl" else "name its folder"
        raise SpecError(f"{what} is a file", hint)
    check_dev_folder(place, ["pyproject.toml", "setup.py"])
    metadata = read_metadata(found, what, python)
    if not NAME.fullmatch(metadata.title):
        hint = 'rename the folder, or write pyproject.toml with [project] name = "mytrainer" and version = "0.1"'
        raise SpecError(f"{what} has no valid name: '{short(metadata.title)}'", hint)
    return DevProject(re.sub(r"[-_.]+", "-", metadata.title).lower(), path, found, where, metadata)


def check_together(projects: Sequence[DevProject]) -> Iterator[Finding]:
    """Yield the findings about projects that exclude each other."""
    names: dict[str, DevProject] = {}
    scripts: dict[str, DevProject] = {}
    for project in projects:
        other = names.setdefault(project.name, project)
        if other is not project:
            text = f"'{short(other.path)}' and '{short(project.path)}' are both named {project.name}"
            yield Finding(text, project.where, "keep one, or rename one in its pyproject.toml")
            continue
        for script in project.scripts:
            if (owner := scripts.setdefault(script, project)) is not project:
                text = f"{owner.name} and {project.name} both have a script '{script}'"
                yield Finding(text, project.where, "rename one of them")


def dev_requirements(projects: Sequence[DevProject]) -> tuple[str, ...]:
    """Return the requirements of the projects on packages of the index; one of another project here is not among them.

    Raises SpecError if a project requires another version of another one.
    """
    if not any(project.metadata.requires for project in projects):
        return ()
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    known = {project.name: project for project in projects}
    found: list[str] = []
    findings: list[Finding] = []
    for project in projects:
        for text in project.metadata.requires:
            parsed = Requirement(text)
            other = known.get(str(canonicalize_name(parsed.name)))
            if other is None:
                found.append(text)
            elif not parsed.specifier.contains(other.metadata.version or "0", prereleases=True):
                why = f"{project.label} requires {text}, and '{short(other.path)}' is {other.label}"
                findings.append(Finding(why, project.where, "change the requirement, or the version of the other one"))
    if findings:
        raise SpecError.of(findings)
    return tuple(dict.fromkeys(found))


def dev_remarks(projects: Iterable[DevProject], contents: Iterable[DevContent]) -> list[str]:
    """Return a remark about each project: its content is declared nowhere else."""
    digests = {content.project.name: content.sha256[:12] for content in contents}
    return [
        f"dev: {project.label} is a copy of the folder {short(project.path)} (sha256 {digests[project.name]}), "
        "not a released package"
        if project.name in digests
        else f"dev: {project.label} is the folder {short(project.path)}, mounted when the image is run"
        for project in projects
    ]
