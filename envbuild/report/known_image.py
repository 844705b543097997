"""An image of the project as far as it is known: spec, target, lock, build, evidence. A missing part is reported."""

from __future__ import annotations

from dataclasses import dataclass, replace

from envbuild.build.plan.units import Plan
from envbuild.core.errors import ConflictError, Finding, LockError
from envbuild.core.shell import shell_word
from envbuild.export.built_image import ImageRecord, read_image_record
from envbuild.lock.model import Lock, lock_digest
from envbuild.lock.update import current_lock
from envbuild.matrix.answer.verdict import Answer
from envbuild.report.model import Fault
from envbuild.spec.image_spec import ImageSpec, fill_versions, load_image_spec
from envbuild.spec.resolve import Resolution, resolve
from envbuild.spec.target import Target, load_target
from envbuild.spec.workspace import Workspace
from envbuild.verify.evidence import Evidence
from envbuild.verify.measured import Measured, find_measured
from envbuild.verify.stored_evidence import find_evidence


@dataclass(frozen=True, slots=True)
class MatrixAnswer:
    """The answer of the matrix about the image, its title, and the refusals of the recipes."""

    answer: Answer
    title: str
    refusals: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownImage:
    """The parts of an image that the project and the store have. `faults`: why one is missing that should be there."""

    spec: ImageSpec
    target: Target
    resolution: Resolution | None = None
    lock: Lock | None = None
    plan: Plan | None = None
    made: ImageRecord | None = None
    evidence: Evidence | None = None
    no_evidence: str = ""
    measured: tuple[Measured, ...] = ()
    faults: tuple[Fault, ...] = ()


def find_known(name: str, workspace: Workspace, matrix: MatrixAnswer) -> KnownImage:
    """Return what is known of an image. What is missing is a fault or a reason, not an error."""
    spec = load_image_spec(name, workspace.project)
    target = load_target(spec.target, workspace.project)
    word = shell_word(name)
    not_locked = KnownImage(spec, target, no_evidence=f"the image has no lock yet: envbuild lock {word}")
    try:
        resolution = locked_resolution(spec, workspace, matrix.answer)
    except ConflictError as error:
        stated = {finding.message for finding in matrix.refusals}
        found = [one for one in error.findings if one.message not in stated]
        return KnownImage(spec, target, no_evidence=not_locked.no_evidence, faults=tuple(map(fault_of, found)))
    try:
        lock = current_lock(resolution, workspace)
    except LockError as error:
        there = workspace.project.lock_path(spec.path).is_file()
        faults = tuple(map(fault_of, error.findings)) if there else ()
        return KnownImage(spec, target, resolution, no_evidence=not_locked.no_evidence, faults=faults)
    from envbuild.build.plan.planner import make_plan

    plan, made = make_plan(resolution, lock), read_image_record(resolution, workspace)
    sha256 = made.sha256 if made else ""
    measured = find_measured(lock.image, lock_digest(lock), target.name, workspace.store, sha256)
    locked = KnownImage(spec, target, resolution, lock, plan, made, measured=measured)
    if made is None:
        reason = f"the store has no build of this spec and lock by this envbuild: envbuild make {word}"
        return replace(locked, no_evidence=reason)
    evidence, reason = find_evidence(made, lock, workspace.reporter)
    return replace(locked, evidence=evidence, no_evidence=f"{reason}: envbuild verify {word}" if reason else "")


def locked_resolution(spec: ImageSpec, workspace: Workspace, answer: Answer) -> Resolution:
    """Return the resolution with the versions of the lock; without a lock, with those that the matrix picks. Raises
    ConflictError."""
    from envbuild.lock.resolve import resolve_as_locked

    if workspace.project.lock_path(spec.path).is_file():
        return resolve_as_locked(spec, workspace.project)
    return resolve(fill_versions(spec, answer.chosen), load_target(spec.target, workspace.project))


def fault_of(finding: Finding) -> Fault:
    """Return a finding as a fault."""
    return Fault(finding.message, finding.where, finding.hint)
