"""The report of a squashfs file: with and without a lock, with evidence of its own and of other bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from envbuild.cli.show_file import show_file
from envbuild.core.console import SilentReporter
from envbuild.core.errors import VerifyError
from envbuild.core.store.store import Store
from envbuild.core.timings import TimingReporter
from envbuild.report import file_report
from envbuild.report.file_report import report_file
from envbuild.report.html.page import write_page
from envbuild.report.model import BANDWIDTH, MATRIX, TIMES, Report
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.read.superblock import read_superblock
from envbuild.verify.contents.metadata import read_metadata
from envbuild.verify.evidence import Evidence, write_evidence
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.stored_evidence import write_file_evidence, write_own_evidence
from envbuild.verify.verify_file import verify_file
from tests.support.image_pair import AFTER, BEFORE, image
from tests.support.launching import shipped_workspace, write_squashfs

pytestmark = pytest.mark.unit

HOSTILE = '<img src=x onerror=alert(1)>"&\u202e'


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return shipped_workspace("", tmp_path)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """Return a file with a lock inside."""
    return image(tmp_path / "small.sqsh", BEFORE)


def evidence_of(file: Path, workspace: Workspace, *results: AuditResult, **changes: str) -> Evidence:
    """Write evidence of a file into the store."""
    from envbuild.lock.model import lock_digest
    from envbuild.squashfs.read.tree import SquashTree

    with SquashTree(file) as tree:
        lock = read_metadata(tree).lock
    assert lock is not None
    digest = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    found = dataclasses.replace(Evidence(lock.image, lock_digest(lock), (), digest, results=results), **changes)  # type: ignore[arg-type]
    write_own_evidence(found, Store.open(workspace.store.root))
    return found


PASSED = AuditResult("link check", Status.PASS, "4 files")


def test_a_file_without_evidence_is_not_verified(built: Path, workspace: Workspace) -> None:
    report = report_file(built, workspace)
    assert report.verdict.kind == "open"
    assert report.verdict.text == f"you have no evidence of this file: envbuild verify {built}"
    assert report.name == "small"
    (ucx,) = report.components
    assert (ucx.name, ucx.version) == ("ucx", "1.19")
    assert ucx.origin.startswith("github:openucx/ucx@")
    assert {row.name for row in report.packages} >= {"libc6", "NumPy"}
    assert report.parts[0].name == "opt/venv/lib/python3.13/site-packages/numpy"
    assert sum(part.size for part in report.parts) == show_file(built).data["unpacked"]
    assert report.parts_are == "folders"
    assert report.matrix is not None and report.matrix.verdict == "recorded"
    assert TIMES in report.missing
    assert report.start[0].form == "srun"
    assert f"--container-image={built}" in report.start[0].text


def test_a_file_that_others_can_write_is_read_once(
    built: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner could put other content there for the moment in which names and sizes are read."""
    built.chmod(0o666)
    evidence = evidence_of(built, workspace, PASSED)
    genuine, forged = built.read_bytes(), image(built.with_name("forged"), AFTER).read_bytes()
    read = file_report.read_content

    def exchanged(*given: Any) -> Any:
        built.write_bytes(forged)
        try:
            return read(*given)
        finally:
            built.write_bytes(genuine)

    monkeypatch.setattr(file_report, "read_content", exchanged)
    report = report_file(built, workspace)
    assert evidence.artifact.removeprefix("sha256:")[:12] in str(report.facts)
    assert report.components[0].version == "1.19"


def test_evidence_of_the_same_bytes_is_used(built: Path, workspace: Workspace) -> None:
    evidence_of(built, workspace, PASSED)
    times = TimingReporter(SilentReporter())
    report = report_file(built, workspace.with_reporter(times))
    texts = [task.text for task in times.tasks]
    assert texts == [f"content of {built.name}", f"sha256 of {built.name}"]  # both are long for a large file
    assert (report.verdict.kind, report.verdict.title) == ("good", "verified")
    assert report.verdict.text == "1 check passed (tier audit), and none failed; tiers not run: run, gpu, fabric"
    assert dict(report.facts)["sha256"] == hashlib.sha256(built.read_bytes()).hexdigest()


def test_evidence_beside_a_file_is_a_statement_of_its_author(built: Path, workspace: Workspace) -> None:
    """It came with the file, so that its owner is the user who downloaded both."""
    write_evidence(evidence_of(built, workspace, PASSED), built.parent)
    next(workspace.store.root.rglob("*.evidence.json")).unlink()
    verdict = report_file(built, workspace).verdict
    assert verdict.kind == "open"
    assert verdict.text.startswith("the evidence beside the file is a statement of its author, and you have no")


def test_what_verify_found_in_a_file_is_its_evidence(built: Path, workspace: Workspace) -> None:
    """With its limit."""
    found = evidence_of(built, workspace, PASSED, inspected_by="the image's own python3")
    next(workspace.store.root.rglob("*.evidence.json")).unlink()
    write_file_evidence(dataclasses.replace(found, artifact=f"sha256:{'0' * 64}"), workspace.store)
    assert "of other bytes" in report_file(built, workspace).verdict.text
    write_file_evidence(found, workspace.store)
    report = report_file(built, workspace)
    assert (report.verdict.kind, report.checks[0].name) == ("good", "link check")
    assert report.notes[0] == "read by the image's own python3: a malicious file can forge these results"


def test_evidence_of_other_bytes_is_not_used(built: Path, workspace: Workspace) -> None:
    evidence_of(built, workspace, PASSED, artifact=f"sha256:{'0' * 64}")
    report = report_file(built, workspace)
    assert report.verdict.kind == "open"
    assert "of other bytes" in report.verdict.text
    assert report.checks == ()


def test_a_failed_check_is_a_fault_with_its_fix(built: Path, workspace: Workspace) -> None:
    evidence_of(
        built, workspace, PASSED, AuditResult("one copy", Status.FAIL, "two of libucp", hint="envbuild make small")
    )
    report = report_file(built, workspace)
    assert (report.verdict.kind, report.verdict.title) == ("bad", "1 fault")
    assert [tuple(fault) for fault in report.faults] == [
        ("one copy: two of libucp", "tier audit", "envbuild make small")
    ]


def test_checks_that_did_not_run_are_no_pass(built: Path, workspace: Workspace) -> None:
    left = AuditResult("kernels", Status.NOT_RUN, "no GPU", "gpu")
    evidence_of(built, workspace, left)
    report = report_file(built, workspace)
    assert (report.verdict.kind, report.verdict.title) == ("open", "not verified")
    evidence_of(built, workspace, PASSED, left)
    report = report_file(built, workspace)
    assert (report.verdict.kind, report.verdict.title) == ("open", "verified in part")
    assert "1 check did not run; tiers not run: run, gpu, fabric" in report.verdict.text


def test_a_third_party_file_has_a_report_of_its_content(tmp_path: Path, workspace: Workspace) -> None:
    site = "usr/lib/python3/dist-packages"
    file = write_squashfs(tmp_path, {f"{site}/numpy-2.5.dist-info/METADATA": "x", f"{site}/numpy/a.py": "y" * 1000})
    report = report_file(file, workspace)
    assert report.verdict.text == "envbuild did not build this image: there is no lock to compare it with"
    assert report.matrix is None
    assert "no lock" in report.missing[MATRIX]
    assert [row.name for row in report.packages] == ["numpy"]
    assert report.start[0].text == ""
    assert "does not record the target" in report.start[0].reason
    assert report.missing[BANDWIDTH].startswith("not run")


def texts_of(tmp_path: Path) -> Path:
    record = {
        "image": HOSTILE,
        "target": HOSTILE,
        "versions": {HOSTILE: HOSTILE},
        "remarks": [HOSTILE],
        "description": HOSTILE,
    }
    rc = f"# org.label {HOSTILE}\n# enroot-provenance: {HOSTILE}\n"
    files = {
        "etc/envbuild/resolution.json": json.dumps(record),
        "etc/rc": rc,
        f"opt/{HOSTILE.replace('/', '')}/file": "x" * 9,
    }
    return write_squashfs(tmp_path, files)


def test_texts_of_a_hostile_file_are_not_markup(tmp_path: Path, workspace: Workspace) -> None:
    file = texts_of(tmp_path)
    report = report_file(file, workspace)
    page = write_page(report, "1")
    assert report.name == file.name  # of the record, only a name that an image can have
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;&quot;&amp;\\u202e" in page
    assert "\u202e" not in page


def test_a_file_with_terabytes_behind_its_image_is_not_digested(built: Path, workspace: Workspace) -> None:
    """A hole takes no disk."""
    Store.open(workspace.store.root)
    size = built.stat().st_size
    os.truncate(built, size + (32 << 20))  # padding, or a hash tree
    report_file(built, workspace)
    os.truncate(built, 1 << 42)
    for read in (report_file, verify_file):
        with pytest.raises(VerifyError, match=r"the squashfs image in it has .*, and the file 4\.4 TB") as caught:
            read(built, workspace)
    assert caught.value.hint == f"truncate -s {-(-size // 4096) * 4096} {built}"


def test_a_file_whose_image_has_a_hole_of_terabytes_is_not_digested(built: Path, workspace: Workspace) -> None:
    """It is as sound as one without: all tables are behind the hole."""
    Store.open(workspace.store.root)
    with built.open("r+b") as file:
        used = read_superblock(file, "").used
        file.seek(40)  # bytes_used
        file.write(((1 << 42) + used).to_bytes(8, "little"))
    os.truncate(built, (1 << 42) + used)
    for read in (report_file, verify_file):
        with pytest.raises(VerifyError, match=r"it has 4\.4 TB, and almost nothing of them is on the disk"):
            read(built, workspace)


def test_a_damaged_file_is_an_error(tmp_path: Path, built: Path, workspace: Workspace) -> None:
    short = tmp_path / "short.sqsh"
    short.write_bytes(built.read_bytes()[:900])
    with pytest.raises(VerifyError):
        report_file(short, workspace)


def test_the_report_of_a_file_is_the_same_twice(built: Path, workspace: Workspace) -> None:
    def page(report: Report) -> str:
        return write_page(report, "1")

    assert page(report_file(built, workspace)) == page(report_file(built, workspace))
