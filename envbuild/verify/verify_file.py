"""Verification of a squashfs file that was not built in this project: the audit, against the lock inside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.errors import SpecError, VerifyError
from envbuild.core.shell import shell_word
from envbuild.lock.lockfile import parse_lock
from envbuild.lock.model import lock_digest
from envbuild.squashfs.read.superblock import refuse_excess
from envbuild.verify.audit import audit
from envbuild.verify.contents.metadata import read_image_texts
from envbuild.verify.dev_checks import project_versions, with_projects
from envbuild.verify.evidence import INSPECTED_BY, Evidence
from envbuild.verify.expectations import locked_contents, locked_own_content
from envbuild.verify.open_image import open_image
from envbuild.verify.pinned_image import PinnedImage, pin_image
from envbuild.verify.run_inspector import inspect_image
from envbuild.verify.selection import Selection
from envbuild.verify.tasks import Task, run_tasks

if TYPE_CHECKING:
    from envbuild.spec.workspace import Workspace


def verify_file(path: Path, workspace: Workspace, published: str = "") -> Evidence:
    """Audit any squashfs file against the lock inside it; recipes' checks are not known, so the run tier does not run.

    published: the sha256 (hex) that it must have; empty: it is a file of its own.

    Raises VerifyError when it contains no lock, because envbuild did not write it, and, before anything of it runs, for
    other bytes than the published ones.
    """
    refuse_excess(path)
    with pin_image(path, workspace) as pinned:
        if published and pinned.sha256 != published:
            raise VerifyError(
                f"corrupt file: expected sha256 {published}, got {pinned.sha256}",
                hint=f"rm {shell_word(path)}; the next pull writes it again",
                where=str(path),
            )
        return audit_file(pinned, workspace)


def audit_file(pinned: PinnedImage, workspace: Workspace) -> Evidence:
    """Return the results of the audit of a squashfs file. Raises VerifyError."""
    path = pinned.path
    texts = read_image_texts(pinned.content, "lock.yaml", "resolution.json")
    if len(texts) < 2:
        raise VerifyError(
            "the file contains no lock to compare with: envbuild did not build this image",
            hint=f"envbuild show {shell_word(path)}",
            where=str(path),
        )
    lock = parse_lock(texts["lock.yaml"], path)
    with open_image(pinned.content, {}, workspace, f"verify {path.name}") as run:
        expected = with_projects(locked_contents(lock), project_versions(texts["resolution.json"]))
        task = Task("audit", lambda: audit(inspect_image(run, locked_own_content(lock)), expected), "audit")
        pinned.check()  # of what is open, before anything of it runs
        results, seconds = run_tasks([task], run, workspace.reporter)
    return Evidence(
        lock.image,
        lock_digest(lock),
        (),
        f"sha256:{pinned.sha256}",
        (),
        tuple(results),
        run.box,
        inspected_by=INSPECTED_BY,
        seconds=seconds,
    )


def check_file_selection(only: Selection, file: Path) -> None:
    """Refuse checks that are known of images of a project alone (SpecError)."""
    if only.recipes or (only.tiers and "audit" not in only.tiers):
        raise SpecError(
            f"{only}: the checks of recipes are not known of a file",
            hint="verify the image by its name, in its project; or leave out --only and --tier",
            where=str(file),
        )
