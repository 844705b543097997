"""The project in which an image is built again: the spec and the lock that were published, and the recipes here.

Recipes are programs and are never published: they are those of envbuild, and of the project in which the command runs.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from envbuild.core.errors import EnvbuildError, LockError, SpecError
from envbuild.lock.lockfile import parse_lock
from envbuild.lock.model import lock_digest
from envbuild.lock.request import lock_request
from envbuild.lock.resolve import resolve_as_locked
from envbuild.publish.rebuild.claim import Claim
from envbuild.spec.image_spec import ImageSpec, load_image_spec
from envbuild.spec.project import Project, is_valid_name
from envbuild.spec.workspace import Workspace

PARTS = ("images", "recipes", "targets", "facts")


def open_rebuild(claim: Claim, workspace: Workspace, folder: Path) -> tuple[ImageSpec, Project]:
    """Return the spec of an image that is to be built again, and its project, which is written into `folder` unless
    the project here has the same spec and lock.

    Raises SpecError, and LockError for a lock that the recipes here do not answer.
    """
    if not claim.lock:
        return load_image_spec(claim.name, workspace.project), workspace.project
    name = parse_lock(claim.lock, Path(claim.name)).image
    if not is_valid_name(name):
        raise SpecError(f"the lock of {claim.name} is of an image {name[:100]!a}, which is not a name")
    if own := find_own(name, claim, workspace.project):
        return own, workspace.project
    project = write_project(name, claim, workspace.project, folder)
    try:
        spec = load_image_spec(name, project)
    except SpecError as error:
        raise SpecError.of(
            replace(item, where=published_place(item.where, claim, folder)) for item in error.findings
        ) from None
    check_dev(spec, claim)
    lock = parse_lock(claim.lock, Path(claim.name))
    if not lock_request(resolve_as_locked(spec, project)).is_answered_by(lock.inputs):
        made = lock.tools.get("envbuild", "")
        raise LockError(
            f"the lock of {claim.name} does not belong to its spec with the recipes and targets here",
            hint=f"rebuild it in its project, with the envbuild that made the lock{f' ({made})' if made else ''}",
        )
    return spec, project


def find_own(name: str, claim: Claim, project: Project) -> ImageSpec | None:
    """Return the spec of the project's image `name`, if it and its lock are those of the claim: only the project has
    its wheels and project folders."""
    if name not in project.images():
        return None
    path = project.find_image(name)
    lock = project.lock_path(path)
    try:
        spec, text = load_image_spec(name, project), lock.read_text()
        if claim.digest:  # both are published as they are
            return spec if (path.read_text(), text) == (claim.spec, claim.lock) else None
        locks = [parse_lock(item, lock) for item in (text, claim.lock)]
    except (EnvbuildError, OSError, UnicodeDecodeError):
        return None
    return spec if spec.text == claim.spec and len(set(map(lock_digest, locks))) == 1 else None


def write_project(name: str, claim: Claim, own: Project, folder: Path) -> Project:
    """Write a project with the spec and the lock of the claim, and what the project here has beside them."""
    for part in PARTS:
        if own.root is not None and (own.root / part).is_dir():
            shutil.copytree(own.root / part, folder / part, ignore=special_files)
    images = folder / "images"
    images.mkdir(exist_ok=True)
    (images / f"{name}.yaml").write_text(claim.spec)
    (images / f"{name}.lock").write_text(claim.lock)
    return replace(own, root=folder)


def published_place(where: str, claim: Claim, folder: Path) -> str:
    """Return the place of a finding in a spec that was written into `folder`, as one of the published image."""
    _, found, rest = where.partition(f"{folder.parent.name}/{folder.name}/")
    return f"{claim.name}: {rest}" if found else where


def special_files(folder: str, names: list[str]) -> list[str]:
    """Return the names in a folder that are neither files nor folders."""
    return [name for name in names if not (Path(folder, name).is_file() or Path(folder, name).is_dir())]


def check_dev(spec: ImageSpec, claim: Claim) -> None:
    """Raise SpecError for an image with project folders, which are not published."""
    if spec.dev:
        raise SpecError(
            f"{claim.name} has project folders ({', '.join(item.name for item in spec.dev)}), which are not published",
            hint="rebuild it in its project, where its spec and its lock are the same",
        )
