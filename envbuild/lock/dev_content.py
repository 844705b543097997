"""The content of project folders (`dev:` of a spec) as a canonical tar of their files (`envbuild.lock.dev_files`).

The tar depends on names, executable bits and bytes alone, so a clone in another place, by another user or with another
umask has the same digest. It is an input of a unit, and no part of the lock."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO

from envbuild.core.errors import Finding, InputError, SpecError
from envbuild.core.fixed_time import TIME
from envbuild.core.regular_file import open_regular
from envbuild.core.rooted_tree import RootedTree
from envbuild.core.store.store import Store
from envbuild.core.text import printable
from envbuild.lock.dev_files import list_files
from envbuild.lock.model import Lock
from envbuild.oci.tar.member import Kind, Member
from envbuild.oci.tar.writer import TarSink
from envbuild.spec.dev_project import DevContent, DevProject
from envbuild.spec.project import Project
from envbuild.spec.resolve import Resolution

CHUNK = 1 << 20


def with_contents(resolution: Resolution) -> Resolution:
    """Return a resolution with the content of its project folders as it is now. Raises SpecError with the findings of
    all of them, InputError without git."""
    found: list[DevContent] = []
    findings: list[Finding] = []
    for project in resolution.spec.dev:
        try:
            found.append(read_content(project))
        except SpecError as error:
            findings += error.at(project.where).findings
        except InputError as error:
            raise error.at(project.where) from None
    if findings:
        raise SpecError.of(findings)
    return replace(resolution, contents=tuple(found))


def file_version(path: Path) -> tuple[int, int] | None:
    """Return what differs when a file was written; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def lock_beside_contents(
    resolution: Resolution, project: Project, write: Callable[[], Lock]
) -> tuple[Lock, Resolution]:
    """Return the lock that `write` returns, and the resolution with the content of its project folders after that: one
    may contain the file of the lock. Raises what `write` and `with_contents` do."""
    if not resolution.contents:
        return write(), resolution
    path = project.new_lock_path(resolution.spec.path)
    before = file_version(path)
    lock = write()
    return lock, resolution if file_version(path) == before else with_contents(resolution)


def check_names(resolution: Resolution, lock: Lock) -> None:
    """Raise SpecError for a project with the name of a locked package: both would be one distribution."""
    locked = {lock.python_files[file].name: lock.python_files[file].version for file in lock.image_python()}
    compiled = [text.partition("==") for sources in resolution.sources.values() for text in sources.gives]
    locked |= {name: version for name, _, version in compiled}
    locked |= {item.name: item.ref for sources in resolution.sources.values() for item in sources.projects}
    findings = [
        Finding(
            f"the project '{project.path}' has the name of a package of the image: {project.name} "
            f"{locked[project.name]}",
            project.where,
            f"rename the project in its pyproject.toml, or remove what requires {project.name}",
        )
        for project in resolution.spec.dev
        if project.name in locked
    ]
    findings += [
        Finding(f"the project {project.name} has the unit of a layer: dev-{project.name}", project.where, "rename it")
        for project in resolution.spec.dev
        if f"dev-{project.name}" in resolution.spec.recipes
    ]
    if findings:
        raise SpecError.of(findings)


def read_content(project: DevProject) -> DevContent:
    """Return digest and size of the content of a project folder. Raises SpecError."""
    sink = TarSink()
    write_content(project, sink)
    return DevContent(project, sink.sha256, sink.size)


def add_contents(contents: Iterable[DevContent], store: Store) -> None:
    """Put the content of project folders into the store. Raises InputError for one that changed meanwhile."""
    for content in contents:
        if store.has_blob(content.sha256):
            continue
        with store.filled(), store.workdir() as work:
            with (work / "content.tar").open("xb") as file:
                write_content(content.project, TarSink(file))
            found = store.add_blob(work / "content.tar")
        if found != content.sha256:
            raise InputError(
                f"the project folder {content.project.folder} changed while it was read", "run the command again"
            )


def write_content(project: DevProject, sink: TarSink) -> None:
    """Write the canonical tar of a project folder. Raises SpecError.

    A program in `envbuild run`, which has the folder too, can put a link in the place of a folder after that was
    judged: nothing outside of the folder is read by it."""
    members: dict[bytes, str] = {project.name.encode(): ""}
    try:
        paths = list_files(project)
    except OSError as error:
        raise SpecError(f"the project '{project.path}' cannot be read: {error}") from None
    for path in paths:
        full = project.name.encode() + b"/" + os.fsencode(path)
        members[full] = path
        while (full := full.rpartition(b"/")[0]) not in members:
            members[full] = ""
    with RootedTree(project.folder, beneath=True) as tree:
        for name, place in sorted(members.items()):
            try:
                write_member(sink, name, tree, place)
            except (OSError, ValueError) as error:
                text = f"the project '{project.path}': {printable(os.fsdecode(name))} cannot be read: {error}"
                raise SpecError(text, "is it written at this moment? run the command again") from None
    sink.close()


def write_member(sink: TarSink, name: bytes, tree: RootedTree, place: str) -> None:
    """Write one file or link of a project folder, or a folder (""). Raises OSError, and ValueError for a file that
    grows meanwhile."""
    if not place:
        sink.begin(Member(name, Kind.DIR, 0o755, mtime=TIME))
        sink.end()
        return
    with tree.open_slot(place, make=None) as slot:
        if slot.status and stat.S_ISLNK(slot.status.st_mode):
            link = os.readlink(slot.name, dir_fd=slot.fd)
            sink.begin(Member(name, Kind.SYMLINK, 0o777, mtime=TIME, link=os.fsencode(link)))
        else:
            with open_regular(Path(f"/proc/self/fd/{slot.fd}") / slot.name, follow=False) as file:
                status = os.fstat(file.fileno())
                mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
                sink.begin(Member(name, Kind.FILE, mode, mtime=TIME, size=status.st_size))
                copy(file, sink)
    sink.end()


def copy(file: IO[bytes], sink: TarSink) -> None:
    while chunk := file.read(CHUNK):
        sink.data(chunk)
