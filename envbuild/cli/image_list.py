"""``envbuild list``: the images of the project and those that ship with envbuild."""

from __future__ import annotations

from typing import Any

from envbuild.cli.inputs_state import needs, unlocked
from envbuild.core.errors import EnvbuildError, LockError
from envbuild.core.result import Result
from envbuild.core.text import table
from envbuild.core.yaml_nodes import relative_path
from envbuild.export.built_image import read_image_record
from envbuild.lock.lockfile import read_lock
from envbuild.lock.request import lock_request
from envbuild.lock.resolve import resolve_as_locked
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace

NAMING = "a name is made of a-z, 0-9, '.', '_' and '-', and begins with a letter or digit"


def list_images(workspace: Workspace, *, keys: bool = False) -> Result:
    """Return every image with the state of its lock; for those without a lock, where its inputs would come from. With
    `keys` also its key."""
    rows = image_rows(workspace, keys=keys)
    for path in workspace.project.misnamed():
        what = "an image's file ends in .yaml" if path.suffix == ".yml" else NAMING
        workspace.reporter.warn(f"{relative_path(path)} is not an image, because of its name: {what}")
    columns = ("name", "target", "lock", *(("key",) if keys else ()), "made", "description")
    cells = [[row[column] for column in columns] for row in short_rows(rows)]
    text = table([column.upper() for column in columns], cells)
    return Result({"images": rows}, "\n".join([text, *unlocked(rows)]))


def image_rows(workspace: Workspace, *, keys: bool = False) -> list[dict[str, Any]]:
    """Return a row for every image; `keys`: with its key and those of its parts (`envbuild.cli.image_keys`)."""
    rows: list[dict[str, Any]] = []
    for name in workspace.project.images():
        row: dict[str, Any] = {
            "name": name, "target": "", "arch": "", "base": "", "lock": "", "made": "", "description": "", "needs": [],
            "needs_mirror": [], **({"key": "", "keys": {}} if keys else {}),
        }  # fmt: skip
        rows.append(row)
        try:
            resolution = resolve_as_locked(load_image_spec(name, workspace.project), workspace.project)
            state = lock_state(resolution, workspace)
            parts = parts_of(resolution, state, workspace) if keys else {}
            done = read_image_record(resolution, workspace) if state == "current" else None
        except EnvbuildError as error:
            row["description"] = str(error.findings[0]).partition("\nhint: ")[
                0
            ]  # envbuild check NAME reports it in full
            continue
        made = done.artifact if done else ""
        target, spec = resolution.target, resolution.spec
        row |= {"target": target.name, "arch": target.arch, "base": spec.base, "lock": state, "made": made} | parts
        row["description"] = spec.description
        if state == "none":
            row |= needs(resolution, workspace)
    return rows


def parts_of(resolution: Resolution, state: str, workspace: Workspace) -> dict[str, Any]:
    """Return the key of an image, and those of its parts."""
    from envbuild.cli.image_keys import image_key, image_keys

    keys = image_keys(resolution, state, workspace)
    return {"key": image_key(keys), "keys": keys}


def lock_state(resolution: Resolution, workspace: Workspace) -> str:
    """Return the state of a lock: none, current, outdated or damaged."""
    path = workspace.project.lock_path(resolution.spec.path)
    if not path.is_file():
        return "none"
    try:
        return "current" if lock_request(resolution).is_answered_by(read_lock(path).inputs) else "outdated"
    except LockError:
        return "damaged"


def short_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as they are printed."""
    return [{**row, "made": "yes" if row["made"] else "no", "key": str(row.get("key", ""))[7:19]} for row in rows]
