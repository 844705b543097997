"""The report of a squashfs file of any origin: what is in it, and the evidence beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from envbuild.core.digest import reported_digest
from envbuild.core.errors import VerifyError
from envbuild.core.regular_file import open_regular
from envbuild.core.shell import shell_word
from envbuild.core.text import amount, printable
from envbuild.lock.model import lock_digest
from envbuild.report.bandwidth_rows import floor_rows, no_bandwidth, series_rows
from envbuild.report.evidence_rows import (
    check_rows,
    failure_rows,
    known_results,
    known_seconds,
    measured_notes,
    tier_rows,
    verify_steps,
)
from envbuild.report.file_facts import file_facts
from envbuild.report.lock_rows import component_rows, origin_rows, package_rows
from envbuild.report.matrix_rows import locked_matrix_part
from envbuild.report.model import (
    BANDWIDTH,
    LAYERS,
    MATRIX,
    PACKAGES,
    TIMES,
    Component,
    Package,
    Part,
    Report,
)
from envbuild.report.start_lines import start_lines
from envbuild.report.verdict import judge
from envbuild.spec.project import is_valid_name
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.read.inode import printable_path
from envbuild.squashfs.read.superblock import describe_superblock, refuse_excess
from envbuild.squashfs.read.tree import SquashTree
from envbuild.verify.contents.metadata import ImageMetadata, read_metadata
from envbuild.verify.contents.size_summary import SizeSummary
from envbuild.verify.evidence import Evidence, forgery_line
from envbuild.verify.host_image import target_of
from envbuild.verify.measured import Measured, find_measured, has_file_evidence
from envbuild.verify.pinned_image import private_content
from envbuild.verify.stored_evidence import find_file_evidence

FOLDERS = "folders"
READ = "read"
LARGEST = 40  # folders that are parts of their own


def report_file(file: Path, workspace: Workspace) -> Report:
    """Return the report of a squashfs file. Raises VerifyError if it is damaged."""
    refuse_excess(file)
    # One file for all that is read, also if another one gets its name; a copy of one that others can write.
    with private_content(file, workspace) as private, open_regular(private) as opened:
        content = Path(f"/proc/self/fd/{opened.fileno()}")
        with named_as(file, content):
            within, summary = read_content(file, content, workspace)
            superblock = describe_superblock(content)
        evidence, sha256, reason = find_evidence(file, content, within, workspace)
        if within.lock and not sha256 and has_file_evidence(workspace.store):
            sha256 = reported_digest(content, workspace.reporter, name=file.name)
    lock, target = within.lock, target_of(within, workspace.project)
    measured: tuple[Measured, ...] = ()
    if lock and target:
        measured = find_measured(lock.image, lock_digest(lock), target.name, workspace.store, sha256)
    results = known_results(evidence, measured, target)
    faults, tiers = failure_rows(results), tier_rows(results, reason)
    checks = check_rows(results, known_seconds(evidence, measured))
    foreign = "envbuild did not build this image: it has no lock"
    image = within.origin.get("image")
    return Report(
        name=image if isinstance(image, str) and is_valid_name(image) else printable(file.name),
        description=str(within.origin.get("description") or ""),
        verdict=judge(faults, tiers, checks, reason),
        facts=tuple(file_facts(file, superblock, within, sha256)),
        faults=faults,
        checks=checks,
        tiers=tiers,
        components=component_rows(lock) if lock else tuple(Component(*row) for row in sorted(within.versions.items())),
        origins=origin_rows(lock) if lock else (),
        parts=folder_parts(summary),
        parts_are=FOLDERS,
        steps=verify_steps(evidence),
        matrix=locked_matrix_part(lock) if lock else None,
        series=series_rows(measured, target),
        floors=floor_rows(target) if target else (),
        packages=package_rows(lock) if lock else installed_rows(within, summary),
        start=start_lines(shell_path(file), workspace),
        notes=(
            *limits_of(evidence, measured),
            f"{amount(summary.unpacked)} unpacked in {sum(summary.kinds.values())} entries",
            *notes_of(within),
        ),
        epoch=lock.epoch if lock else 0,
        missing={
            LAYERS: "the file has no files",
            TIMES: "a file does not record how long its build took; envbuild report NAME does, in its project",
            MATRIX: foreign,
            PACKAGES: "no package of Debian or Python was found in the file",
            BANDWIDTH: no_bandwidth(target, measured),
        },
    )


@contextlib.contextmanager
def named_as(file: Path, content: Path) -> Iterator[None]:
    """Let errors about the path `content` name `file`."""
    try:
        yield
    except VerifyError as error:
        texts = ("message", "where", "hint")
        raise VerifyError.of(
            replace(found, **{key: getattr(found, key).replace(str(content), str(file)) for key in texts})
            for found in error.findings
        ) from None


def read_content(file: Path, content: Path, workspace: Workspace) -> tuple[ImageMetadata, SizeSummary]:
    """Return the records in a file and the sizes of its folders, as a task of the reporter: an image can have many
    files. Raises VerifyError if it is damaged."""
    workspace.reporter.start(READ, f"content of {file.name}")
    try:
        with SquashTree(content) as tree:
            return read_metadata(tree), SizeSummary(str(file)).add_all(tree.walk())
    finally:
        workspace.reporter.finish(READ)


def shell_path(file: Path) -> str:
    """Return the path of a file as a command names it: never taken for the name of a spec."""
    return str(file.absolute())


def find_evidence(
    file: Path, content: Path, within: ImageMetadata, workspace: Workspace
) -> tuple[Evidence | None, str, str]:
    """Return the evidence that this user has of a file, its sha256 (empty: not computed), and why there is none.
    content: where the bytes of the file are read."""
    verify = f"envbuild verify {shell_word(shell_path(file))}"
    if within.lock is None:
        return None, "", "envbuild did not build this image: there is no lock to compare it with"
    found, sha256 = find_file_evidence(content, file.name, within.lock, workspace.store, workspace.reporter)
    if found:
        return found, sha256, ""
    if sha256:
        return None, sha256, f"the evidence of this image is of other bytes: {verify}"
    beside = file.parent / Evidence(within.lock.image, lock_digest(within.lock), (), "").file_name
    what = "the evidence beside the file is a statement of its author, and " if beside.exists() else ""
    return None, "", f"{what}you have no evidence of this file: {verify}"


def limits_of(evidence: Evidence | None, measured: Sequence[Measured]) -> Iterator[str]:
    """Yield what limits the results of a file that was not built in this store: any file can contain a lock."""
    if evidence and not evidence.is_foreign:
        return
    if evidence:
        yield forgery_line(evidence)
    yield from measured_notes(measured, "this file")


def folder_parts(summary: SizeSummary) -> tuple[Part, ...]:
    """Return the folders of a file by size, and one part for all others."""
    ranked = sorted(summary.folders.items(), key=lambda item: (-item[1], item[0]))
    parts = [Part(printable_path(path), size) for path, size in ranked[:LARGEST]]
    rest = ranked[LARGEST:]
    if rest:
        parts.append(Part("other folders", sum(size for _, size in rest), f"{len(rest)} folders"))
    return tuple(part for part in parts if part.size)


def installed_rows(within: ImageMetadata, summary: SizeSummary) -> tuple[Package, ...]:
    """Return the packages that are installed in a file without a lock: their digests are not known."""
    debian = (Package(name, version, "deb", "installed", "") for name, version in within.debian.items())
    python = (Package(name, version, "pypi", "installed", "") for name, version in summary.python.items())
    return tuple(sorted([*debian, *python], key=lambda row: (row.kind, row.name, row.version)))


def notes_of(within: ImageMetadata) -> tuple[str, ...]:
    """Return the remarks that a file records: of its recipes, and repairs of its conversion."""
    lists = (within.origin.get("remarks"), within.export.get("notes"), within.export.get("repairs"))
    return tuple(str(line) for lines in lists if isinstance(lines, list) for line in lines)
