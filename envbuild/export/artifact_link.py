"""The link ``NAME.sqsh`` beside the artifacts: what a job script names.

Images of projects have it for themselves: a third-party image of the same name gets ``NAME-image.sqsh``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.store.json_files import read_json
from envbuild.core.store.records import parse_record
from envbuild.core.store.store import Store

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
    taken = name in workspace.project.images() or is_project_link(workspace.store, name)
    return f"{name}-image" if taken else name
