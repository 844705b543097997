"""The files of a project folder (`dev:` of a spec) that are its content.

Of a git work tree, it is what git tracks, and what is untracked and not ignored; else all but `LEFT_OUT`. Byte code and
egg-info are never part of it: a run in the folder writes them. Neither are envbuild's own files with secrets, a site
file and private keys for signatures: who pulls the image would have them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from envbuild.core.errors import Finding, SpecError
from envbuild.core.regular_file import MAX_TEXT, read_bounded
from envbuild.core.signing.key_file import has_private_key
from envbuild.core.signing.public_keys import MAX_KEY
from envbuild.core.text import amount, printable
from envbuild.lock.dev_git import find_work_tree, list_git
from envbuild.spec.dev_project import DevProject
from envbuild.spec.project_folder import SITE
from envbuild.spec.site_text import is_site
from envbuild.spec.trust import check_dev_folder

MOST, LARGEST = 10_000, 256 << 20  # files, and bytes of all of them: code, not data
NEVER = ("__pycache__", ".git")
LEFT_OUT = (".hg", ".svn", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache")
LEFT_OUT_ON_TOP = (".venv", "venv", "build", "dist")


def list_files(project: DevProject) -> list[str]:
    """Return the paths of the files and links of a project folder, relative to it. Raises SpecError for a link that
    leads out of it, a special file, too much content, and what others than the caller can change."""
    folder = project.folder
    place = find_work_tree(folder)
    found = list(list_git(folder, place)) if place else []
    if not found:  # not a work tree, or one that ignores the folder
        ignored = set(list_git(folder, place, alone=True)) if place else set()
        found = list(walk(str(folder)))
        found = [path for path in found if path in ignored] or found  # a .gitignore of "*" ignores its own folder
    found = [path for path in found if not is_left_out(path)]
    found = sorted(set(found) - set(find_secrets(folder, found)))
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
    above = {path[:at] for path in found for at, letter in enumerate(path) if letter == "/"}
    check_dev_folder(folder, sorted(above | set(found)))
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


def find_secrets(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield the names of files with secrets in a folder, and those of the files that such links lead to."""
    for name in names:
        if is_secret(folder / name):
            yield name
            yield os.path.relpath(os.path.realpath(folder / name), os.path.realpath(folder))


def is_secret(path: Path) -> bool:
    """Return whether a file is a site file, which may have logins, or has a private key of envbuild or cosign."""
    most = MAX_TEXT if path.name == SITE else MAX_KEY
    try:
        if path.stat().st_size > most:
            return False
        content = read_bounded(path, most)
    except OSError:  # reported when it is read
        return False
    return has_private_key(content) or (path.name == SITE and is_site(content))


def walk(top: str) -> Iterator[str]:
    """Yield the paths in a folder that is not in a work tree of git. Raises OSError, also for too many folders."""
    pending = [""]
    count = folders = 0
    while pending:
        folder = pending.pop()
        with os.scandir(f"{top}/{folder}") as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}".lstrip("/")
                if entry.name in (*NEVER, *LEFT_OUT) or (not folder and entry.name in LEFT_OUT_ON_TOP):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                    folders += 1
                    if folders > MOST:
                        raise OSError(f"more than {MOST} folders")
                    continue
                count += 1
                yield path
                if count > 2 * MOST:  # the caller refuses it
                    return
