"""``envbuild lock``: the inputs of images into their locks.

Returns data and texts and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from envbuild.core.console import RecordingReporter
from envbuild.core.errors import ConflictError, EnvbuildError
from envbuild.core.shell import shell_word
from envbuild.core.text import counted
from envbuild.lock.lock_record import LockRecord, read_lock_record, write_lock_record
from envbuild.lock.resolve import resolve_as_locked
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.workspace import Workspace

if TYPE_CHECKING:  # a run without a change needs none of them
    from envbuild.lock.update import LockUpdate
    from envbuild.spec.image_spec import ImageSpec
    from envbuild.spec.resolve import Resolution


@dataclass(frozen=True, slots=True)
class LockOptions:
    """Options of `lock`. `only`: of the packages in `upgrade`, which are Python's, each changes alone."""

    upgrade: frozenset[str] = frozenset()
    only: bool = False
    refresh: bool = False
    fresh: bool = False
    dry_run: bool = False

    def command(self, name: str) -> str:
        """Return the command that writes the lock of which a dry run printed the changes."""
        option = "--upgrade-package" if self.only else "--upgrade"
        words = [f"{option} {shell_word(package)}" for package in sorted(self.upgrade)]
        words += ["--refresh"] if self.refresh else []
        words += ["--fresh"] if self.fresh else []
        return " ".join(["envbuild lock", name, *words])


def lock_images(
    names: Sequence[str], workspace: Workspace, options: LockOptions
) -> Iterator[tuple[dict[str, Any], str]]:
    """Lock images, one after the other. Yield (data, text) of each when its lock is written.

    An image that cannot be locked does not stop the others. Raises at the end what `load`, `resolve` and `make_lock`
    raise, with the findings of all images, as the error of the first.
    """
    recorder = RecordingReporter(workspace.reporter)
    failed: list[EnvbuildError] = []
    for name in names:
        workspace = workspace.with_reporter(recorder)  # each image has the warnings of its own
        try:
            spec = load_image_spec(name, workspace.project)
            row, text = unchanged_image(spec, workspace, options) or lock_image(spec, workspace, options)
        except EnvbuildError as error:
            recorder.take_warnings()
            failed.append(named(error, name) if len(names) > 1 else error)
            continue
        yield row | {"warnings": recorder.take_warnings()}, text
    if failed:
        raise type(failed[0]).of(dict.fromkeys(finding for error in failed for finding in error.findings))


def unchanged_image(spec: ImageSpec, workspace: Workspace, options: LockOptions) -> tuple[dict[str, Any], str] | None:
    """Return the answer for an image whose lock an earlier run found current, and nothing changed since; else None."""
    if options != LockOptions():
        return None
    try:
        record = read_lock_record(resolve_as_locked(spec, workspace.project), workspace)
    except ConflictError:  # the versions of the lock do not fit the spec any more: others may
        return None
    if record is None:
        return None
    for warning in record.warnings:
        workspace.reporter.warn(warning)
    workspace.reporter.info(f"{spec.name}: the lock is unchanged")
    return answer(spec, workspace, record)


def lock_image(spec: ImageSpec, workspace: Workspace, options: LockOptions) -> tuple[dict[str, Any], str]:
    """Lock one image. Raises what its steps raise."""

    from envbuild.export.built_layout import own_images
    from envbuild.lock.resolve import resolve_in
    from envbuild.lock.single_upgrade import require_python_packages
    from envbuild.lock.update import update_lock

    upgrade = require_python_packages(spec, workspace, options.upgrade) if options.only else options.upgrade
    resolution = resolve_in(spec, workspace.project, ["*"] if options.fresh else upgrade)
    done = update_lock(
        resolution,
        workspace,
        upgrade=upgrade,
        only=options.only,
        refresh=options.refresh,
        fresh=options.fresh,
        dry_run=options.dry_run,
        own=own_images(workspace),
    )
    record = LockRecord.of(done.lock, done.warnings)
    if not options.dry_run:
        write_lock_record(resolve_as_locked(spec, workspace.project), record, workspace)
    row, text = answer(spec, workspace, record, done)
    return (row, text) if not options.dry_run else dry_run_answer(resolution, workspace, done, row, options)


def answer(
    spec: ImageSpec, workspace: Workspace, record: LockRecord, done: LockUpdate | None = None
) -> tuple[dict[str, Any], str]:
    """Return the answer for an image, as data and as text. `done`: None if nothing was done."""
    path = str(workspace.project.lock_path(spec.path))
    row = {
        **{"image": spec.name, "path": path, "debian": record.debian, "python": record.python},
        **{"sources": record.sources, "written": bool(done and done.written), "dry_run": False},
        "changes": changes(done),
    }
    counts = (counted(record.debian, "Debian package"), counted(record.python, "Python file"))
    text = f"{spec.name}: {', '.join(counts)}, {counted(record.sources, 'source')} in {path}"
    return row, f"{text}\n  next:     envbuild make {spec.name}"


def changes(done: LockUpdate | None) -> list[dict[str, Any]]:
    """Return what a lock has differently from the one before, as plain data."""
    if done is None or not done.changed:
        return []
    from envbuild.lock.diff import find_differences

    return [difference.row() for difference in find_differences(done.previous, done.lock)]


def dry_run_answer(
    resolution: Resolution, workspace: Workspace, done: LockUpdate, row: dict[str, Any], options: LockOptions
) -> tuple[dict[str, Any], str]:
    """Return the answer for an image that was not locked, and the archives that moved on since it was."""
    from envbuild.lock.diff import find_differences, summarize
    from envbuild.lock.dry_run import moved_archives, present_dates
    from envbuild.lock.request import lock_request

    before = done.previous.releases if done.previous else {}
    moved = moved_archives(before, present_dates(lock_request(resolution), workspace)) if before else {}
    lines = [f"  {name} moved on since the lock was made: {was} → {now}" for name, (was, now) in moved.items()]
    if moved:
        lines.append(f"  newer packages of it: envbuild lock {row['image']} --refresh")
    what = "unchanged"
    if done.changed:
        what = summarize(find_differences(done.previous, done.lock)) or "the same packages, for another request"
    text = f"{row['image']}: dry run, {row['path']} is not written: {what}"
    row |= {"dry_run": True, "changed": done.changed, "moved": {name: list(dates) for name, dates in moved.items()}}
    return row, "\n".join([text, *lines, f"  next:     {options.command(row['image'])}"])


def named(error: EnvbuildError, name: str) -> EnvbuildError:
    """Return the error with the name of the image in front of findings without a place in its spec."""
    return type(error).of(
        finding if finding.where else replace(finding, message=f"{name}: {finding.message}")
        for finding in error.findings
    )
