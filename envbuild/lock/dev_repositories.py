"""Repositories of a project folder (`dev:` of a spec) that a program of the image must not change: the caller's next
git there starts what their settings and hooks name.

A ``.git`` may be a file that names another folder (gitrepository-layout(5)), also one in the project. A mount on it is
useless while a folder above it can be renamed, so each folder on the way is a mount, too: the kernel renames no mount.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from envbuild.core.errors import SpecError
from envbuild.core.shell import shell_word
from envbuild.core.text import printable
from envbuild.lock.dev_git import ask_git, common_directory, find_work_tree, is_inside
from envbuild.lock.git.repositories import find_git_directory

MOST_FOLDERS = 20_000  # folders that are searched for repositories of which git reports nothing
MOST_REPOSITORIES = 1000
Place = tuple[Path, str]  # a folder of this machine, and where it is mounted
Mount = tuple[str, str, bool]  # source, target, whether it is read-only
# What is in a project folder is mounted from there, once that is mounted: a program of another `run` that has it, too,
# can put a link in the place of a folder, and as a path of this machine that could lead to any folder of the caller.
ITSELF = ""


def project_mounts(projects: Sequence[Place], own: Sequence[Path] = (), *, writable: bool = False) -> list[Mount]:
    """Return the mounts of project folders, read-only: an edit there is seen at once.

    `writable`: only repositories are read-only, and the paths `own` that are in the folders: specs and recipes of the
    caller, which the next command reads. Raises SpecError for one that cannot be protected, and for a folder that is in
    another one: a program could put a link in its place."""
    places = [(folder.resolve(), target) for folder, target in projects]
    if not writable:
        return [(str(folder), target, True) for folder, target in places]
    for folder, _ in places:
        if any(folder.is_relative_to(other) for other, _ in places if other != folder):
            text = f"the project folder {printable(str(folder))} is in another one, which a program could exchange"
            raise SpecError(text, "envbuild run without --writable-dev; or name the outer folder alone in dev:")
    guarded = dict.fromkeys(path for folder, _ in places for path in find_all_repositories(folder))
    guarded |= {path: None for path in own if any(path.is_relative_to(folder) for folder, _ in places)}
    if link := next((path for path in guarded if path in own and path.is_symlink()), None):
        text = f"{printable(str(link))} is a link, which a program of the image could replace"
        raise SpecError(text, "put the folder there, or the project below a folder without the code of dev")
    mounts: list[Mount] = []
    for folder, target in places:
        inside = [path.relative_to(folder) for path in guarded if path.is_relative_to(folder)]
        known = frozenset(inside)
        top = [path for path in inside if known.isdisjoint(path.parents)]
        if len(top) > MOST_REPOSITORIES:
            text = f"{printable(str(folder))} has more than {MOST_REPOSITORIES} repositories, each of which is a mount"
            raise SpecError(text, "envbuild run without --writable-dev")
        above = sorted({parent for path in top for parent in path.parents}, key=lambda path: len(path.parts))
        mounts.append((str(folder), target, False))
        mounts += [(ITSELF, _join(target, path), False) for path in above if path.parts]
        mounts += [(ITSELF, _join(target, path), True) for path in top]
    return mounts


def _join(target: str, path: Path) -> str:
    return f"{target}/{path}" if path.parts else target


def find_all_repositories(folder: Path) -> Iterator[Path]:
    """Yield what `find_repositories` finds in a folder and in those below it, also in one that git ignores or does not
    know. Of these the nearest `MOST_FOLDERS` are searched: a folder may have millions of files."""
    yield from find_repositories(folder)
    for place in find_work_trees(folder):
        if place != folder:
            yield from find_own(place)


def find_work_trees(folder: Path) -> Iterator[Path]:
    """Yield the folders with a ``.git``, of the nearest `MOST_FOLDERS` from `folder` downwards. Raises SpecError."""
    waiting = deque([folder])
    for _ in range(MOST_FOLDERS):
        if not waiting:
            return
        place = waiting.popleft()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # removed meanwhile
            below = list_folders(place)
            waiting += sorted(place / entry.name for entry in below if entry.name != ".git")
            if any(entry.name == ".git" for entry in below):
                yield place


def list_folders(place: Path) -> list[os.DirEntry[str]]:
    """Return the folders in a folder, and its ``.git``. Raises SpecError for one that the caller cannot read: the
    program can, as root of its user namespace."""
    try:
        with os.scandir(place) as entries:
            return [entry for entry in entries if entry.name == ".git" or entry.is_dir(follow_symlinks=False)]
    except PermissionError:
        text = f"{printable(str(place))} cannot be searched for repositories"
        raise SpecError(text, f"chmod u+rwx {shell_word(place)}") from None


def find_repositories(folder: Path) -> Iterator[Path]:
    """Yield what decides which programs git starts in a folder: what `find_own` yields of it and of its submodules, and
    the folder of one that has no repository yet, into which git looks all the same. Raises SpecError."""
    place = find_work_tree(folder)
    if place == folder:
        yield from find_own(folder)
    if place is None or not shutil.which("git") or find_git_directory(place) is None:
        return
    for name in dict.fromkeys(ask_git(folder, place)):
        inner = folder / name
        if is_inside(name) and inner.is_dir() and not inner.is_symlink():
            if os.path.lexists(inner / ".git"):
                yield from find_repositories(inner)
            else:
                yield inner


def find_own(folder: Path) -> Iterator[Path]:
    """Yield the ``.git`` of a work tree, the git directory that it names, and the common directory of that. Raises
    SpecError where a link is on the way: it can lead elsewhere afterwards."""
    own = folder / ".git"
    if own.is_symlink():
        target, top = shell_word(own.resolve()), shell_word(folder)
        hint = f"write it as a file: rm {shell_word(own)} && git init --separate-git-dir={target} {top}"
        raise SpecError(f"{printable(str(own))} is a link, which {REPLACE}", hint)
    yield own
    if repository := find_git_directory(folder):
        yield from (without_links(path, folder) for path in (repository, common_directory(repository)))


REPLACE = "a program of the image could replace by another repository"


def without_links(path: Path, folder: Path) -> Path:
    """Return the place of a git directory that is named by a repository in `folder`. Raises SpecError if a link that is
    in a folder of the caller leads there."""
    at = Path("/")
    for part in path.parts[1:]:
        if part == "..":
            at = at.parent
            continue
        at /= part
        if at.is_symlink():
            if at.parent.is_relative_to(folder):
                words = f"git init --separate-git-dir={shell_word(path.resolve())} {shell_word(folder)}"
                hint = f"write the path without it: {words}"
                raise SpecError(f"{printable(str(at))} is a link on the way to a git directory, which {REPLACE}", hint)
            at = at.resolve()
    return at
