"""Verification of a finished image: inspect the artifact, compare it with the lock, run the recipes' lines, write
evidence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.build.plan.units import Plan
from envbuild.core.result import Result
from envbuild.core.shell import shell_word
from envbuild.core.store.records import forget_damaged
from envbuild.core.store.store import Store
from envbuild.export.built_image import BuiltImage, load_built_image, record_evidence
from envbuild.lock.model import Lock, lock_digest
from envbuild.spec.resolve import Resolution
from envbuild.verify.audit import audit
from envbuild.verify.contents.squashfs_path import find_squashfs_file
from envbuild.verify.evidence import (
    INSPECTED_BY,
    Evidence,
    evidence_document,
    raise_failures,
    summary_lines,
)
from envbuild.verify.expectations import expected_contents, own_content
from envbuild.verify.extension_modules import import_results
from envbuild.verify.file_bytes import file_bytes_result
from envbuild.verify.image_checks import image_checks
from envbuild.verify.open_image import open_image
from envbuild.verify.pinned_image import PinnedImage, pin_image, raise_replaced
from envbuild.verify.provenance import image_documents, write_documents
from envbuild.verify.recipe_checks import run_checks
from envbuild.verify.results import Status
from envbuild.verify.run_inspector import Runner, inspect_image
from envbuild.verify.selection import ALL, Selection, check_recipes, check_tiers
from envbuild.verify.shared_interpreter import SharedInterpreter, can_share
from envbuild.verify.stored_evidence import write_file_evidence, write_own_evidence
from envbuild.verify.tasks import Task, run_tasks
from envbuild.verify.verify_file import check_file_selection, verify_file

# The file of a project's image is read when it is written: compared with its packs, and its sha256 is recorded. Every
# verify compares that sha256.
CHECKED = ("sha256", "checksums of the packs")

if TYPE_CHECKING:
    from envbuild.build.engines.base import BuildResult
    from envbuild.export.project_image import SquashfsFile
    from envbuild.spec.workspace import Workspace


def verify_image(name: str, workspace: Workspace, only: Selection = ALL) -> Result:
    """Audit and run a built image again, or audit a squashfs file against the lock inside it.

    only: a part of the checks; no evidence is written then. Raises VerifyError, and SpecError for a part that the
    image does not have.
    """
    from envbuild.build.engines.embedded.sandbox import warn_without_filter

    warn_without_filter(workspace.reporter)
    check_tiers(only.tiers)
    file = find_squashfs_file(name)
    if file:
        check_file_selection(only, file)
        evidence = verify_file(file, workspace)
        written = write_file_evidence(evidence, workspace.store)
        raise_failures(evidence)
        return Result(evidence_document(evidence), "\n".join([*summary_lines(evidence), f"  evidence: {written}"]))
    image = load_built_image(name, workspace)
    if only.recipes:
        layers = [recipe.name for recipe in image.resolution.recipes]
        check_recipes(only, image_checks(image.resolution, image.lock), layers, image.record.image)
    path, evidence, data = verify_built(image, workspace, only)
    raise_failures(evidence)
    last = f"  evidence: {path}" if path else f"  evidence: not written: only a part ran ({only})"
    return Result(data, "\n".join([*summary_lines(evidence), last]))


def verify(
    artifact: SquashfsFile, plan: Plan, built: BuildResult, resolution: Resolution, lock: Lock, workspace: Workspace
) -> tuple[Path, Evidence]:
    """Run the audit and run tiers on the squashfs file and write the evidence; return its path and the evidence.

    Raises VerifyError with every failure, after the evidence is written.
    """
    layers = tuple(layer.diff_id for layer in built.layers)
    with pin_image(artifact.path, workspace, artifact.sha256, artifact.stamp) as pinned:
        if pinned.sha256 != artifact.sha256:  # in the store of a group another member can exchange it
            raise_replaced(artifact.path)
        evidence = collect_evidence(pinned, artifact.messages, layers, plan, resolution, lock, workspace)
    path = write_own_evidence(evidence, workspace.store)
    for line in summary_lines(evidence):
        workspace.reporter.info(f"verify {line}")
    raise_failures(evidence)
    return path, evidence


def verify_built(
    image: BuiltImage, workspace: Workspace, only: Selection = ALL
) -> tuple[Path | None, Evidence, dict[str, Any]]:
    """Verify an image that was built before; return the path of the evidence (None: it is of a part), the evidence and
    its document.

    All bytes of the file are read first. Nothing runs in a damaged one, and the next `make` writes it again.
    """
    path, record = Path(image.record.artifact), image.record
    layers = tuple(layer.diff_id for layer in image.layers)
    with pin_image(path, workspace) as pinned:
        whole = file_bytes_result(record.image, record.sha256, pinned.sha256)
        if whole.status == Status.FAIL:
            forget_damaged(image.key.path)
            evidence = Evidence(
                image.lock.image, lock_digest(image.lock), layers, f"sha256:{record.sha256}", record.messages, (whole,)
            )
        else:
            evidence = collect_evidence(
                pinned, record.messages, layers, image.plan, image.resolution, image.lock, workspace, only
            )
    if not only.is_all and whole.status != Status.FAIL:
        return None, evidence, evidence_document(evidence)
    written = write_own_evidence(evidence, workspace.store)
    if not evidence.failures:
        documents = image_documents(
            image.resolution,
            image.lock,
            image.key.lock,
            evidence,
            record.engine,
            workspace,
            record.all_caches,
        )
        write_documents(documents, path, record.sha256)
    record_evidence(image, None if evidence.failures else written)
    return written, evidence, evidence_document(evidence)


def collect_evidence(
    pinned: PinnedImage,
    messages: Sequence[str],
    layers: tuple[str, ...],
    plan: Plan,
    resolution: Resolution,
    lock: Lock,
    workspace: Workspace,
    only: Selection = ALL,
) -> Evidence:
    """Return the results of all tiers that can run here, or of a part, on the file itself."""
    expected, own = expected_contents(resolution, lock), own_content(resolution, lock)
    by_hand = f"envbuild run {shell_word(pinned.path)} -- /bin/sh"
    checks = image_checks(resolution, lock)
    with open_image(pinned.content, plan.config.env, workspace, f"verify {plan.image}") as run:
        tasks = [
            Task("audit", lambda: audit(inspect_image(run, own), expected), "audit"),
            Task("imports", lambda: import_results(expected.modules, run, by_hand)),
            *(
                Task(check.name, partial(run_checks, [check], run, shell=by_hand), check.tier, recipe, check)
                for recipe, check in checks
            ),
        ]
        found, seconds = run_tasks(share_torch(only.pick(tasks), run, by_hand), run, workspace.reporter)
    results = [file_bytes_result(plan.image, pinned.sha256, pinned.sha256), *found, *only.left_out(tasks)]
    digest = f"sha256:{pinned.sha256}"
    return Evidence(
        lock.image,
        lock_digest(lock),
        layers,
        digest,
        tuple(messages),
        tuple(results),
        run.box,
        CHECKED,
        INSPECTED_BY,
        unit_sources(plan, layers, workspace.store),
        seconds,
        {content.project.name: f"sha256:{content.sha256}" for content in resolution.contents},
    )


def share_torch(tasks: Sequence[Task], run: Runner, shell: str) -> list[Task]:
    """Return the tasks with one instead of those whose checks can share an import of torch, if there are several."""
    shared = [task.check for task in tasks if task.check and can_share(task.check)]
    if len(shared) < 2:
        return list(tasks)
    together = SharedInterpreter(shared, run, shell)
    one = Task(f"{len(shared)} checks beside torch", together.run, parts=together.seconds)
    at = next(number for number, task in enumerate(tasks) if task.check in shared)
    rest = [task for task in tasks if task.check not in shared]
    return [*rest[:at], one, *rest[at:]]


def unit_sources(plan: Plan, layers: Collection[str], store: Store) -> dict[str, str]:
    """Return unit → the entry of a cache that it is from, of those in the image with `layers` (diff ids)."""
    found = {unit: store.unit(key) for unit, key in plan.keys().items()}
    return {
        unit: record.source
        for unit, record in found.items()
        if record and record.source and record.layer and record.layer.diff_id in layers
    }
