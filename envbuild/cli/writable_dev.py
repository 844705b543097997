"""Project folders that a program of an image may write (``run --writable-dev``): what is read-only all the same, so
that a mistake of the program does no harm, and what is reported afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from envbuild.core.console import Reporter
from envbuild.core.errors import SpecError
from envbuild.core.shell import shell_word
from envbuild.lock.dev_links import check_ways
from envbuild.lock.dev_repositories import Mount, Place, find_work_trees, project_mounts
from envbuild.spec.project import Project
from envbuild.spec.project_intrusions import FOLDERS


def writable_mounts(
    projects: Sequence[Place], project: Project, files: Sequence[Path], store: Path
) -> tuple[list[Mount], list[Path]]:
    """Return the mounts of project folders that a program of the image may write, and where there is nothing that
    decides what a command does (`project_parts`). Raises SpecError if a part cannot be protected."""
    parts, missing = project_parts(project, files, store)
    mounts = project_mounts(projects, parts, writable=True)
    read = [*files, *(path for path in parts if path != store.resolve())]
    check_ways(read, parts, [folder.resolve() for folder, _ in projects])
    return mounts, missing


def project_parts(project: Project, files: Sequence[Path], store: Path) -> tuple[list[Path], list[Path]]:
    """Return the files and folders that decide what a command of the project does, and the places where there are
    none: a program of an image that may write the project's folder (``dev: ..``) must not change the former. `files`:
    those of the spec, its own last."""
    root = (project.root or files[-1].parent).resolve()
    specs = [path.resolve() for path in files]
    places = [*(root / name for name in (*FOLDERS, "site.yaml")), *specs, specs[-1].with_suffix(".lock")]
    places += [store.resolve(), *([(project.site_alone / "site.yaml").resolve()] if project.site_alone else [])]
    return [path for path in places if os.path.lexists(path)], [path for path in places if not os.path.lexists(path)]


def list_work_trees(projects: Sequence[Place]) -> list[Path]:
    """Return the folders with a ``.git`` in project folders. Raises SpecError."""
    return [place for folder, _ in projects for place in find_work_trees(folder.resolve())]


def report_new(
    missing: Iterable[Path], work_trees: Sequence[Path], projects: Sequence[Place], report: Reporter
) -> None:
    """Warn of what a program of the image has made that the caller's next commands take for theirs."""
    new = [(path, "the next command takes it for a part of this project") for path in filter(os.path.lexists, missing)]
    try:
        made = dict.fromkeys(list_work_trees(projects)).keys() - set(work_trees)
    except SpecError as error:
        report.warn(f"{error.message}, which could be made by the command")
        made = set()
    new += [(place / ".git", "git starts in that folder what its settings name") for place in sorted(made)]
    for path, why in new:
        report.warn(f"{shell_word(path)} is new: {why}. Unless you made it: rm -r {shell_word(path)}")
