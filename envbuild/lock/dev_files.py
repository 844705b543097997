"""The files of a project folder (`dev:` of a spec) that are its content.

Of a git work tree, it is what git tracks, and what is untracked and not ignored; else all but `LEFT_OUT`. Byte code and
egg-info are never part of it: a run in the folder writes them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from envbuild.core.errors import Finding, SpecError
from envbuild.core.ownership import own_users
from envbuild.core.text import amount, printable
from envbuild.lock.git.git_program import error_summary, run_git
from envbuild.spec.dev_project import DevProject
from envbuild.spec.trust import check_dev_folder

MOST, LARGEST = 10_000, 256 << 20  # files, and bytes of all of them: code, not data
NEVER = ("__pycache__", ".git")
LEFT_OUT = (".hg", ".svn", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache")
LEFT_OUT_ON_TOP = (".venv", "venv", "build", "dist")
NO_PROGRAM = "core.fsmonitor=false"  # which the settings of a repository name
OWN_ALONE = "safe.directory="  # git then refuses the repository of any other user


def list_files(project: DevProject) -> list[str]:
    """Return the paths of the files and links of a project folder, relative to it. Raises SpecError for a link that
    leads out of it, a special file, too much content, and what others than the caller can change."""
    folder = project.folder
    found = list_git(folder, "") if find_work_tree(folder) else []
    if not found:  # not a work tree, or one that ignores the folder
        found = list(walk(str(folder)))
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


def walk(top: str) -> Iterator[str]:
    """Yield the paths in a folder that is not in a work tree of git. Raises SpecError."""
    pending = [""]
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
