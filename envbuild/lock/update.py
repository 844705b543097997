"""The lock of an image as a step of `make`: read when it is current, made when there is none, updated on request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from envbuild.core.console import RecordingReporter
from envbuild.core.distributions import is_local_image
from envbuild.core.errors import LockError
from envbuild.lock.base_image.own_images import NO_IMAGES, OwnImages
from envbuild.lock.lockfile import read_lock, read_lock_of
from envbuild.lock.model import Lock
from envbuild.lock.request import lock_request
from envbuild.spec.library_conflicts import find_wheel_copies
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace


def ensure_lock(resolution: Resolution, workspace: Workspace, own: OwnImages = NO_IMAGES) -> Lock:
    """Return the lock of an image; make it if there is none. Raises LockError if the inputs of the image changed.

    own: the images of the project, of which one may be the base of this one"""
    if not workspace.project.lock_path(resolution.spec.path).is_file():
        workspace.reporter.info(f"{resolution.spec.name} has no lock; locking its inputs")
        return update_lock(resolution, workspace, own=own).lock
    from envbuild.lock.matrix_check import check_lock

    lock = current_lock(resolution, workspace)
    check_lock(resolution, lock, workspace)
    return lock


def renew_lock(resolution: Resolution, workspace: Workspace, own: OwnImages = NO_IMAGES) -> Lock:
    """Return the lock of an image; make it if there is none, and again if the inputs of the image changed, or its base,
    which is a file or another image of the project."""
    path = workspace.project.lock_path(resolution.spec.path)
    if path.is_file():
        lock = stored_lock(resolution, workspace)
        is_current = lock is not None and lock_request(resolution).is_answered_by(lock.inputs)
        if lock is None or not is_current or base_changed(resolution, lock, workspace, own):
            workspace.reporter.info(f"{path.name} is outdated; locking the inputs of {resolution.spec.name}")
            return update_lock(resolution, workspace, own=own).lock
    return ensure_lock(resolution, workspace, own)


def base_changed(resolution: Resolution, lock: Lock, workspace: Workspace, own: OwnImages) -> bool:
    """Return whether the base of an image is on this machine (a file, another image of the project), and is another one
    than in its current lock. One that is not here, as at a site without a network, is reported."""
    name, base = resolution.spec.name, resolution.spec.base
    if not is_local_image(base):
        return False
    from envbuild.lock.base_file import is_other_base

    at, folder = workspace, Path(lock_request(resolution).folder)
    other, why = is_other_base(base, lock, folder, own, at.site, at.store, at.reporter)
    if other is None:
        workspace.reporter.warn(f"whether {name} is on the present {base} is not known: {why}")
    return bool(other)


def current_lock(resolution: Resolution, workspace: Workspace) -> Lock:
    """Return the present lock. Raises LockError if there is none, or if the inputs of the image changed."""
    path, name = workspace.project.lock_path(resolution.spec.path), resolution.spec.name
    if not path.is_file():
        raise LockError(f"{name} has no lock", hint=f"envbuild lock {name}")
    lock = read_lock_of(name, path)
    if not lock_request(resolution).is_answered_by(lock.inputs):
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


@dataclass(frozen=True, slots=True)
class LockUpdate:
    """The lock of an image after a command. `previous`: the one before; `written`: whether its file was written;
    `warnings`: those about the lock itself, and not about this run."""

    lock: Lock
    previous: Lock | None
    written: bool
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Return whether the lock is another one than before."""
        return self.lock is not self.previous


def update_lock(
    resolution: Resolution,
    workspace: Workspace,
    *,
    upgrade: frozenset[str] = frozenset(),
    only: bool = False,
    refresh: bool = False,
    fresh: bool = False,
    dry_run: bool = False,
    own: OwnImages = NO_IMAGES,
) -> LockUpdate:
    """Lock an image and write the file.

    Versions of an older lock are preferred while they are consistent, unless `fresh`; a damaged lock is ignored with a
    warning.

    only: nothing but the Python packages in `upgrade` may change, in a lock that is current
    dry_run: report what would change, and do not write the file
    """
    from envbuild.lock.commit_origin import commit_hints
    from envbuild.lock.diff import find_differences, summarize
    from envbuild.lock.dry_run import compare_with_dry_run, record_dry_run, run_key
    from envbuild.lock.lockfile import write_lock
    from envbuild.lock.make_lock import make_lock
    from envbuild.lock.matrix_check import known_packages, record_matrix_versions
    from envbuild.lock.rollback import rollback_warnings
    from envbuild.lock.upgrades import check_only_moved

    reporter, name, request = workspace.reporter, resolution.spec.name, lock_request(resolution)
    new_path = workspace.project.new_lock_path(resolution.spec.path)
    previous = None if fresh else previous_lock(resolution, workspace)
    older = previous or stored_lock(resolution, workspace)
    lock = make_lock(
        request,
        workspace.site,
        workspace.store,
        reporter,
        previous=previous,
        upgrade=upgrade,
        refresh=refresh or fresh,
        waivers=tuple({"fact": waiver.fact, "reason": waiver.reason} for waiver in resolution.waivers),
        find_conflicts=partial(find_wheel_copies, resolution.env, resolution.spec.where),
        commit_hints=commit_hints(resolution),
        own=own,
        newest=known_packages(resolution, workspace),
        only=only,
    )
    recorder = RecordingReporter(reporter)
    lock = record_matrix_versions(resolution, lock, replace(workspace, reporter=recorder))
    if resolution.spec.dev:
        from envbuild.lock.dev_content import check_names

        check_names(resolution, lock)
    differences = find_differences(previous, lock)
    if only:
        check_only_moved(name, differences, upgrade)
    for difference in differences if previous else ():
        reporter.info(difference.line())
    rollbacks = rollback_warnings(older, lock) if older else []
    run = run_key(new_path, request, older, upgrade, only=only, fresh=fresh)
    if not dry_run and (line := compare_with_dry_run(run, lock, workspace)):
        rollbacks.append(line)
    for line in rollbacks:
        reporter.warn(line)
    if previous and previous == replace(lock, releases=previous.releases):
        reporter.info(f"{name}: the lock is unchanged")
        return LockUpdate(previous, previous, written=False, warnings=tuple(recorder.warnings))
    if dry_run:
        record_dry_run(run, lock, workspace)
        reporter.info(f"dry run: {new_path} is not written ({summarize(differences) or 'no package changes'})")
        return LockUpdate(lock, older, written=False)
    new_path.parent.mkdir(parents=True, exist_ok=True)
    write_lock(lock, new_path)
    reporter.info(f"wrote {new_path}")
    return LockUpdate(lock, older, written=True, warnings=tuple(recorder.warnings))


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
