"""The lock of an image as a step of `make`: read when it is current, made when there is none, updated on request."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from envbuild.core.errors import LockError
from envbuild.lock.base_image.own_images import OwnImages, refuse_own_image
from envbuild.lock.lockfile import read_lock, read_lock_of
from envbuild.lock.model import Lock
from envbuild.lock.request import lock_request
from envbuild.spec.library_conflicts import find_wheel_copies
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace


def ensure_lock(resolution: Resolution, workspace: Workspace, own: OwnImages = refuse_own_image) -> Lock:
    """Return the lock of an image; make it if there is none. Raises LockError if the inputs of the image changed.

    own: returns the OCI layout of an image of the project that is the base of this one"""
    if not workspace.project.lock_path(resolution.spec.path).is_file():
        workspace.reporter.info(f"{resolution.spec.name} has no lock; locking its inputs")
        return update_lock(resolution, workspace, own=own)
    from envbuild.lock.matrix_check import check_lock

    lock = current_lock(resolution, workspace)
    check_lock(resolution, lock, workspace)
    return lock


def renew_lock(resolution: Resolution, workspace: Workspace, own: OwnImages = refuse_own_image) -> Lock:
    """Return the lock of an image; make it if there is none, and again if the inputs of the image changed."""
    path = workspace.project.lock_path(resolution.spec.path)
    if path.is_file():
        lock = stored_lock(resolution, workspace)
        if lock is None or lock.inputs != lock_request(resolution).digest():
            workspace.reporter.info(f"{path.name} is outdated; locking the inputs of {resolution.spec.name}")
            return update_lock(resolution, workspace, own=own)
    return ensure_lock(resolution, workspace, own)


def current_lock(resolution: Resolution, workspace: Workspace) -> Lock:
    """Return the present lock. Raises LockError if there is none, or if the inputs of the image changed."""
    path, name = workspace.project.lock_path(resolution.spec.path), resolution.spec.name
    if not path.is_file():
        raise LockError(f"{name} has no lock", hint=f"envbuild lock {name}")
    lock = read_lock_of(name, path)
    if lock.inputs != lock_request(resolution).digest():
        raise LockError(
            f"{path.name} is outdated, because the inputs of {name} changed since it was made",
            hint=f"envbuild lock {name}",
            where=str(path),
        )
    return lock


def draft_lock(resolution: Resolution) -> Lock:
    """Return a draft for an image without a lock: its plan can be read, but not built."""
    from envbuild.lock.draft import draft_from_request

    return draft_from_request(lock_request(resolution))


def update_lock(
    resolution: Resolution,
    workspace: Workspace,
    *,
    upgrade: frozenset[str] = frozenset(),
    refresh: bool = False,
    fresh: bool = False,
    own: OwnImages = refuse_own_image,
) -> Lock:
    """Lock an image and write the file.

    Versions of an older lock are preferred while they are consistent, unless `fresh`; a damaged lock is ignored with a
    warning.
    """
    from envbuild.lock.commit_origin import commit_hints
    from envbuild.lock.diff import describe_changes
    from envbuild.lock.lockfile import write_lock
    from envbuild.lock.make_lock import make_lock
    from envbuild.lock.matrix_check import known_packages, record_matrix_versions
    from envbuild.lock.rollback import rollback_warnings

    reporter, name = workspace.reporter, resolution.spec.name
    new_path = workspace.project.new_lock_path(resolution.spec.path)
    previous = None if fresh else previous_lock(resolution, workspace)
    lock = make_lock(
        lock_request(resolution),
        workspace.site,
        workspace.store,
        reporter,
        previous=previous,
        upgrade=upgrade,
        refresh=refresh,
        waivers=tuple({"fact": waiver.fact, "reason": waiver.reason} for waiver in resolution.waivers),
        find_conflicts=partial(find_wheel_copies, resolution.env, resolution.spec.where),
        commit_hints=commit_hints(resolution),
        own=own,
        newest=known_packages(resolution, workspace),
    )
    lock = record_matrix_versions(resolution, lock, workspace)
    for line in describe_changes(previous, lock) if previous else ():
        reporter.info(line)
    if older := previous or stored_lock(resolution, workspace):
        for line in rollback_warnings(older, lock):
            reporter.warn(line)
    if previous and previous == replace(lock, releases=previous.releases):
        reporter.info(f"{name}: the lock is unchanged")
        return previous
    new_path.parent.mkdir(parents=True, exist_ok=True)
    write_lock(lock, new_path)
    reporter.info(f"wrote {new_path}")
    return lock


def stored_lock(resolution: Resolution, workspace: Workspace) -> Lock | None:
    """Return the present lock, even if it is outdated; None if there is none or it is damaged."""
    try:
        return read_lock(workspace.project.lock_path(resolution.spec.path))
    except LockError:
        return None


def previous_lock(resolution: Resolution, workspace: Workspace) -> Lock | None:
    """Return the lock whose versions are preferred; None if there is none or it is damaged."""
    path = workspace.project.lock_path(resolution.spec.path)
    if not path.is_file():
        return None
    try:
        return read_lock(path)
    except LockError as error:
        workspace.reporter.warn(f"{error.message}; its versions are ignored")
        return None
