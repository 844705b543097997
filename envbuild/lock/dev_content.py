"""The content of project folders (`dev:` of a spec): which files it is, and its canonical tar.

Of a git work tree, it is what git tracks, and what is untracked and not ignored; else all but `LEFT_OUT`. Byte code and
egg-info are never part of it: a run in the folder writes them. The tar depends on names, executable bits and bytes
alone, so a clone in another place, by another user or with another umask has the same digest. It is an input of a unit,
and no part of the lock."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from envbuild.core.errors import Finding, InputError, SpecError
from envbuild.core.fixed_time import TIME
from envbuild.core.ownership import own_users
from envbuild.core.regular_file import open_regular
from envbuild.core.store.store import Store
from envbuild.core.text import amount, printable
from envbuild.lock.git.git_program import error_summary, run_git
from envbuild.lock.model import Lock
from envbuild.oci.tar.member import Kind, Member
from envbuild.oci.tar.writer import TarSink
from envbuild.spec.dev_project import DevContent, DevProject
from envbuild.spec.resolve import Resolution
from envbuild.spec.trust import check_dev_folder

CHUNK = 1 << 20
MOST, LARGEST = 10_000, 256 << 20  # files, and bytes of all of them: code, not data
NEVER = ("__pycache__", ".git")
LEFT_OUT = (".hg", ".svn", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache")
LEFT_OUT_ON_TOP = (".venv", "venv", "build", "dist")
NO_PROGRAM = "core.fsmonitor=false"  # which the settings of a repository name
OWN_ALONE = "safe.directory="  # git then refuses the repository of any other user


def with_contents(resolution: Resolution) -> Resolution:
    """Return a resolution with the content of its project folders as it is now. Raises SpecError with the findings of
    all of them."""
    found: list[DevContent] = []
    findings: list[Finding] = []
    for project in resolution.spec.dev:
        try:
            found.append(read_content(project))
        except SpecError as error:
            findings += error.at(project.where).findings
    if findings:
        raise SpecError.of(findings)
    return replace(resolution, contents=tuple(found))


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
    """Write the canonical tar of a project folder. Raises SpecError."""
    members: dict[bytes, Path | None] = {project.name.encode(): None}
    try:
        paths = list_files(project)
    except OSError as error:
        raise SpecError(f"the project '{project.path}' cannot be read: {error}") from None
    for path in paths:
        full = project.name.encode() + b"/" + os.fsencode(path)
        members[full] = project.folder / path
        while (full := full.rpartition(b"/")[0]) not in members:
            members[full] = None
    for name, place in sorted(members.items()):
        try:
            write_member(sink, name, place)
        except (OSError, ValueError) as error:
            text = f"the project '{project.path}': {printable(os.fsdecode(name))} cannot be read: {error}"
            raise SpecError(text, "is it written at this moment? run the command again") from None
    sink.close()


def write_member(sink: TarSink, name: bytes, place: Path | None) -> None:
    """Write one file, link, or folder (None). Raises OSError, and ValueError for a file that grows meanwhile."""
    if place is None:
        sink.begin(Member(name, Kind.DIR, 0o755, mtime=TIME))
    elif place.is_symlink():
        sink.begin(Member(name, Kind.SYMLINK, 0o777, mtime=TIME, link=os.fsencode(place.readlink())))
    else:
        with open_regular(place, follow=False) as file:
            status = os.fstat(file.fileno())
            mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
            sink.begin(Member(name, Kind.FILE, mode, mtime=TIME, size=status.st_size))
            copy(file, sink)
    sink.end()


def copy(file: IO[bytes], sink: TarSink) -> None:
    while chunk := file.read(CHUNK):
        sink.data(chunk)


def list_files(project: DevProject) -> list[str]:
    """Return the paths of the files and links of a project folder, relative to it. Raises SpecError for a link that
    leads out of it, a special file, too much content, and what others than the caller can change."""
    folder = project.folder
    found = list_git(folder, "") if find_work_tree(folder) else []
    if not found:  # not a work tree, or one that ignores the folder
        found = list(walk(str(folder), ""))
    found = sorted(path for path in found if not is_left_out(path))
    if len(found) > MOST:
        raise too_much(project, f"more than {MOST} files")
    total = 0
    findings = []
    for path in found:
        status = os.lstat(folder / path)
        total += status.st_size
        if stat.S_ISLNK(status.st_mode):
            if reason := link_fault(folder, path):
                findings.append(Finding(f"the project '{project.path}': {printable(path)} {reason}", project.where))
        elif not stat.S_ISREG(status.st_mode):
            findings.append(
                Finding(f"the project '{project.path}': {printable(path)} is not a regular file", project.where)
            )
    if findings:
        hint = "remove it, or name it in .gitignore"
        raise SpecError.of(replace(finding, hint=hint) for finding in findings[:20])
    if total > LARGEST:
        raise too_much(project, f"more than {amount(LARGEST)} ({amount(total)})")
    folders = {path.rpartition("/")[0] for path in found} - {""}
    check_dev_folder(folder, sorted(folders | set(found)))
    return found


def too_much(project: DevProject, what: str) -> SpecError:
    hint = "name data and results in .gitignore, or keep them in another folder: dev is for code"
    return SpecError(f"the project '{project.path}' has {what}", hint, project.where)


def link_fault(folder: Path, path: str) -> str:
    """Return why a link is refused; "" for one that remains in the folder."""
    target = str((folder / path).readlink())
    if target.startswith("/"):
        return f"is a link to an absolute path: {printable(target)}"
    inside = Path(os.path.realpath(folder / path)).is_relative_to(os.path.realpath(folder))
    lexical = os.path.normpath(f"{path}/../{target}")
    return "" if inside and lexical.split("/")[0] != ".." else f"is a link out of the folder: {printable(target)}"


def is_left_out(path: str) -> bool:
    """Return whether a run or an installation in the folder writes a file."""
    parts = path.split("/")
    return path.endswith(".pyc") or any(part in NEVER or part.endswith(".egg-info") for part in parts)


def walk(top: str, below: str) -> Iterator[str]:
    """Yield the paths in a folder that is not in a work tree of git. Raises SpecError."""
    pending = [below]
    count = 0
    while pending:
        folder = pending.pop()
        with os.scandir(f"{top}/{folder}") as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}".lstrip("/")
                if entry.name in (*NEVER, *LEFT_OUT) or (not folder and entry.name in LEFT_OUT_ON_TOP):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                    continue
                count += 1
                yield path
                if count > 2 * MOST:  # the caller refuses it
                    return


def find_work_tree(folder: Path) -> Path | None:
    """Return the work tree of git that a folder is in; None if it is in none."""
    return next((place for place in (folder, *folder.parents) if os.path.lexists(place / ".git")), None)


def git_settings(folder: Path) -> tuple[str, ...]:
    """Return the settings of git for a folder: without git's own check of owners, which refuses root's repository too,
    if the work tree and its repository belong to users whom `check_dev_folder` trusts."""
    place, users = find_work_tree(folder), own_users()
    statuses = [path.lstat() for path in (place, place / ".git")] if place else []
    if statuses and all(stat.S_ISDIR(status.st_mode) and status.st_uid in users for status in statuses):
        return (NO_PROGRAM,)
    return (NO_PROGRAM, OWN_ALONE)


def list_git(folder: Path, below: str) -> list[str]:
    """Return what git tracks in a folder, and what is untracked and not ignored; also of submodules. Raises
    SpecError."""
    listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    done = run_git(None, "-C", str(folder), *listing, settings=git_settings(folder))
    if done.returncode:
        text = f"git cannot list the files of {printable(str(folder))}: {error_summary(done.stderr)}"
        raise SpecError(text, f"git -C {folder} status")
    found: list[str] = []
    for name in dict.fromkeys(os.fsdecode(item).rstrip("/") for item in done.stdout.split(b"\0") if item):
        place = folder / name
        if not os.path.lexists(place):  # removed, and not yet committed
            continue
        if place.is_dir() and not place.is_symlink():  # a submodule, or a repository in the folder
            found += list_git(place, f"{below}{name}/") if os.path.lexists(place / ".git") else []
        else:
            found.append(f"{below}{name}")
    return found
