"""The link ``NAME.sqsh`` beside the artifacts: what a job script names.

Images of projects have it for themselves: a third-party image of the same name gets ``NAME-image.sqsh``, or more of
the suffix. Of two
third-party images of different repositories the first one has it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.store.json_files import read_json
from envbuild.core.store.records import file_names, parse_record
from envbuild.core.store.store import Store
from envbuild.core.text import printable

if TYPE_CHECKING:
    from envbuild.spec.workspace import Workspace


def link_by_name(path: Path, name: str) -> None:
    """Link ``NAME.sqsh`` beside a file to it, unless it is so."""
    link = path.with_name(f"{name}.sqsh")
    if link.is_symlink() and str(link.readlink()) == path.name:
        return
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(path.name)
    temporary.replace(link)


def link_reference(path: Path, name: str, reference: str, workspace: Workspace) -> None:
    """Link ``NAME.sqsh`` beside the file of a third-party image to it, unless it is that of an image of another
    repository, which is reported: a job that names the link would start the other team's image."""
    owner = owner_of(workspace.store, name)
    if owner and repository_of(owner) != repository_of(reference):
        link = path.with_name(f"{name}.sqsh")
        workspace.reporter.warn(
            f"{link} remains a link to {printable(owner)}, which is of another repository: use {path}, or -o FILE"
        )
        return
    link_by_name(path, name)


def owner_of(store: Store, name: str) -> str:
    """Return the reference of the third-party image that ``NAME.sqsh`` in the store links to; "" if it is not known."""
    try:
        target = (store.root / "artifacts" / f"{name}.sqsh").readlink().name
    except OSError:
        return ""
    for path in sorted((store.root / "images").iterdir()):
        value = parse_record(read_json(path))
        reference = value["made"].get("reference") if value and file_names(value).get("artifact") == target else None
        if isinstance(reference, str):
            return reference
    return ""


def repository_of(reference: str) -> str:
    """Return a reference without its tag and digest: ``registry.example/team/app``."""
    folder, slash, last = reference.removeprefix("docker://").partition("@")[0].rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


def is_project_link(store: Store, name: str) -> bool:
    """Return whether ``NAME.sqsh`` in the store links to an image that `make` made, of any project."""
    try:
        target = (store.root / "artifacts" / f"{name}.sqsh").readlink().name
    except OSError:
        return False
    for path in (store.root / "images").iterdir():
        value = parse_record(read_json(path))
        if value and "lock" in value["made"] and Path(value["made"]["artifact"]).name == target:
            return True
    return False


def free_name(name: str, workspace: Workspace) -> str:
    """Return the name of a third-party image in the store: another one if an image of a project has it."""
    images, artifacts = workspace.project.images(), workspace.store.root / "artifacts"

    def is_file(name: str) -> bool:  # a tag can be the digits in the name of another image's file
        path = artifacts / f"{name}.sqsh"
        return path.is_file() and not path.is_symlink()

    while name in images or is_file(name) or is_project_link(workspace.store, name):
        name = f"{name}-image"
    return name
