"""Locks that a command requires and does not make (`make --locked`)."""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.core.errors import Finding, LockError
from envbuild.lock.base_image.own_images import NO_IMAGES, OwnImages
from envbuild.lock.matrix_check import check_lock
from envbuild.lock.model import Lock
from envbuild.lock.resolve import resolve_in
from envbuild.lock.update import base_changed, current_lock
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace


def require_lock(resolution: Resolution, workspace: Workspace, own: OwnImages = NO_IMAGES) -> Lock:
    """Return the present lock, and write nothing. Raises LockError if there is none, or if `renew_lock`
    would make another one: the inputs of the image changed, or a base that is a file or another image of the
    project."""
    lock = current_lock(resolution, workspace)
    if base_changed(resolution, lock, workspace, own):
        name, path = resolution.spec.name, workspace.project.lock_path(resolution.spec.path)
        raise LockError(f"{path.name} would change, because the base of {name} did", f"envbuild lock {name}", str(path))
    check_lock(resolution, lock, workspace)
    return lock


def check_locks(names: Iterable[str], workspace: Workspace) -> None:
    """Raise LockError with every image whose lock is missing, damaged or outdated."""
    findings: list[Finding] = []
    for name in names:
        try:
            spec = load_image_spec(name, workspace.project)
            current_lock(resolve_in(spec, workspace.project), workspace)
        except LockError as error:
            findings += error.findings
    if findings:
        raise LockError.of(findings)
