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


def list_images(workspace: Workspace) -> Result:
    """Return every image with the state of its lock; for those without a lock, where its inputs would come from."""
    rows: list[dict[str, Any]] = []
    for name in workspace.project.images():
        row = {"name": name, "target": "", "lock": "", "made": "", "description": "", "needs": [], "needs_mirror": []}
        rows.append(row)
        try:
            resolution = resolve_as_locked(load_image_spec(name, workspace.project), workspace.project)
            state = lock_state(resolution, workspace)
        except EnvbuildError as error:
            row["description"] = str(error.findings[0]).partition("\nhint: ")[
                0
            ]  # envbuild check NAME reports it in full
            continue
        done = read_image_record(resolution, workspace) if state == "current" else None
        made = done.artifact if done else ""
        row |= {"target": resolution.target.name, "lock": state, "made": made}
        row["description"] = resolution.spec.description
        if state == "none":
            row |= needs(resolution, workspace)
    for path in workspace.project.misnamed():
        what = "an image's file ends in .yaml" if path.suffix == ".yml" else NAMING
        workspace.reporter.warn(f"{relative_path(path)} is not an image, because of its name: {what}")
    columns = ("name", "target", "lock", "made", "description")
    cells = [[row[column] for column in columns] for row in short_made(rows)]
    text = table([column.upper() for column in columns], cells)
    return Result({"images": rows}, "\n".join([text, *unlocked(rows)]))


def lock_state(resolution: Resolution, workspace: Workspace) -> str:
    """Return the state of a lock: none, current, outdated or damaged."""
    path = workspace.project.lock_path(resolution.spec.path)
    if not path.is_file():
        return "none"
    try:
        return "current" if read_lock(path).inputs == lock_request(resolution).digest() else "outdated"
    except LockError:
        return "damaged"


def short_made(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "made": "yes" if row["made"] else "no"} for row in rows]
