"""The report of an image of the project before it is built: with a lock, without one, outdated, in conflict."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from envbuild.cli.write_report import make_report
from envbuild.core.errors import SpecError
from envbuild.core.store.records import write_record
from envbuild.core.store.store import Store
from envbuild.export.built_image import ImageRecord, read_key
from envbuild.gpu.model import GPU, PASS, Figure, Outcome
from envbuild.gpu.sealed import evidence_document
from envbuild.lock.lockfile import read_lock
from envbuild.lock.model import lock_digest
from envbuild.lock.resolve import resolve_image
from envbuild.report.ctrf import write_ctrf
from envbuild.report.html.page import MAX_BYTES, write_page
from envbuild.report.junit import write_junit
from envbuild.report.lock_rows import component_origin, origin_rows, package_rows
from envbuild.spec.workspace import open_workspace
from envbuild.verify.evidence import Evidence, write_evidence
from envbuild.verify.measured import Measured, store_evidence
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.stored_evidence import write_own_evidence
from tests.support.command import ROOT
from tests.support.gpu_bench import job

pytestmark = pytest.mark.unit

SPEC = """\
schema: 1
description: two versions that do not work together
target: h100-ib
base: debian:13
python: "3.13"
layers:
  cuda: "{cuda}"
  torch: "2.15"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project of its own, in which the test runs."""
    (tmp_path / "images").mkdir()
    (tmp_path / "site.yaml").write_text(f"schema: 1\nstore: {tmp_path}/store\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ENVBUILD_STORE", raising=False)
    return tmp_path


@pytest.mark.slow_unit
def test_an_image_without_a_lock_has_a_report(project: Path) -> None:
    report = make_report("h100-ucc")
    assert (report.verdict.kind, report.verdict.title) == ("open", "not built")
    assert report.verdict.text == "the image has no lock yet: envbuild lock h100-ucc"
    versions = {row.name: row.version for row in report.components}
    assert versions["torch"] == "2.15.0"
    assert versions["ucc"] == "1.8.0"
    assert report.missing["layers"].startswith("not built")
    assert report.matrix is not None and report.matrix.verdict == "conditional"
    assert {row.kind for row in report.matrix.cited} == {"condition", "need", "fact"}
    assert all(row.source and (row.seen or row.fact == "driver") for row in report.matrix.cited)
    needs = {row.text.partition(">=")[0] for row in report.matrix.cited if row.kind == "need"}
    assert {"kernel", "driver"} <= needs
    assert all("it is started after: envbuild lock" in line.reason for line in report.start)
    assert {row.name for row in report.floors} == {
        "host_device_bandwidth",
        "node_allreduce_busbw",
        "ib_write_bandwidth_gdr",
    }
    assert "NCCL_NET=IB" in report.start[0].text
    assert [tier.state.partition(":")[0] for tier in report.tiers] == ["not run"] * 4
    assert len(write_page(report, "1").encode()) <= MAX_BYTES


@pytest.mark.slow_unit
def test_an_image_with_a_lock_has_its_materials(project: Path) -> None:
    for name in ("h100-ucc-cu124.yaml", "h100-ucc-cu124.lock"):
        shutil.copy(ROOT / "images" / name, project / "images" / name)
    report = make_report("h100-ucc-cu124")
    assert report.verdict.title == "not built"
    assert "envbuild make h100-ucc-cu124" in report.verdict.text
    assert dict(report.facts)["lock"].startswith("sha256:")
    assert report.epoch > 0
    assert {row.kind for row in report.packages} == {"deb", "generic", "github", "operating-system", "pypi"}
    assert len(write_page(report, "1").encode()) <= MAX_BYTES
    assert write_page(report, "1") == write_page(make_report("h100-ucc-cu124"), "1")


@pytest.mark.slow_unit
def test_an_image_with_evidence_of_its_lock_has_bandwidths_and_is_not_verified(project: Path) -> None:
    name = "h100-ucc-cu124"
    for file in (f"{name}.yaml", f"{name}.lock"):
        shutil.copy(ROOT / "images" / file, project / "images" / file)
    lock = lock_digest(read_lock(project / "images" / f"{name}.lock"))
    figure = Figure("node_allreduce_busbw", 470.0, "GB/s", 16 << 30, 8)
    outcomes = (Outcome("NCCL", GPU, PASS, "x", figures=(figure,)),)
    own = job(image=name, lock=lock, target="h100-ib-550")
    document = evidence_document(own, outcomes, "2026-01-01T00:00:00Z", "envbuild 0", {})
    store_evidence(Measured(document, outcomes), Store.open(project / "store"))
    report = make_report(name)
    assert [tier.state.partition(":")[0] for tier in report.tiers] == ["not run", "not run", "passed", "not run"]
    assert (report.verdict.kind, report.verdict.title) == ("open", "not built")
    (series,) = report.series
    assert series.floor and series.floor.value == 460.0
    note = "measured with an image of the same lock"
    assert note in write_junit(report, "1")
    tests = json.loads(write_ctrf(report, "1"))["results"]["tests"]
    assert [note in test["message"] for test in tests if test["suite"] == ["gpu"]] == [True, True]


@pytest.mark.slow_unit
def test_evidence_of_another_member_of_a_group_verifies_nothing(project: Path) -> None:
    """Who may write the store can state anything."""
    for file in ("cpu-ucx.yaml", "cpu-ucx.lock"):
        shutil.copy(ROOT / "images" / file, project / "images" / file)
    lock = lock_digest(read_lock(project / "images" / "cpu-ucx.lock"))
    (project / "store").mkdir()
    (project / "store").chmod(0o3775)
    with open_workspace() as workspace:
        store, key = workspace.store, read_key(resolve_image("cpu-ucx", workspace), workspace)
    artifact = store.root / "artifacts" / "cpu-ucx-1.sqsh"
    artifact.write_bytes(b"squashfs")
    sha256 = hashlib.sha256(b"squashfs").hexdigest()
    passed = AuditResult("link check", Status.PASS, "4 files")
    evidence = Evidence("cpu-ucx", lock, (), f"sha256:{sha256}", results=(passed,))
    path = write_evidence(evidence, artifact.parent)
    made = ImageRecord("cpu-ucx", str(artifact), sha256, lock, "embedded", (), str(path), (), (), (), 1.0)
    assert key
    write_record(key.path, asdict(made))
    found = make_report("cpu-ucx").verdict
    assert (found.kind, found.title) == ("open", "not verified")
    assert found.text == "this user has no evidence of the file: envbuild verify cpu-ucx"
    write_own_evidence(evidence, store)
    assert make_report("cpu-ucx").verdict.title == "verified"


@pytest.mark.slow_unit
def test_an_outdated_lock_is_a_fault(project: Path) -> None:
    text = (ROOT / "images" / "cpu-ucx.yaml").read_text()
    (project / "images" / "cpu-ucx.yaml").write_text(text.replace("[numpy]", "[numpy, rich]"))
    shutil.copy(ROOT / "images" / "cpu-ucx.lock", project / "images" / "cpu-ucx.lock")
    report = make_report("cpu-ucx")
    assert report.verdict.kind == "bad"
    assert [fault.fix for fault in report.faults] == ["envbuild lock cpu-ucx"]
    assert report.packages == ()


@pytest.mark.slow_unit
def test_a_conflict_is_a_fault_with_the_nearest_change(project: Path) -> None:
    (project / "images" / "bad.yaml").write_text(SPEC.format(cuda="11.8"))
    report = make_report("bad")
    assert report.verdict.kind == "bad"
    assert report.faults
    assert all(fault.text and fault.fix for fault in report.faults)
    assert report.matrix is not None and report.matrix.verdict == "conflict"
    assert len(write_page(report, "1").encode()) <= MAX_BYTES


def test_a_spec_with_mistakes_is_an_error(project: Path) -> None:
    (project / "images" / "bad.yaml").write_text(SPEC.format(cuda="13.2") + "  torhc: {}\n")
    with pytest.raises(SpecError, match="torhc"):
        make_report("bad")
    with pytest.raises(SpecError):
        make_report("none")


def test_origins_of_a_lock() -> None:
    lock = read_lock(ROOT / "images" / "h100-ucc-cu124.lock")
    found = {name: component_origin(name, lock) for name in lock.versions}
    assert found["ucx"].startswith("github:openucx/ucx@")
    assert found["torch"] == found["nccl"] == "Python package index"
    assert found["openmpi"] == found["rdma-core"] == "debian:trixie/main"
    assert component_origin("none", lock) == ""
    wheels = read_lock(ROOT / "images" / "h100-nccl.lock")
    assert component_origin("cuda", wheels) == "Python package index"
    cpu = read_lock(ROOT / "images" / "cpu-ucx.lock")
    assert component_origin("mpi4py", cpu) == "Python package index, compiled in the build"


def test_every_input_of_a_lock_has_a_place() -> None:
    lock = read_lock(ROOT / "images" / "h100-ucc-cu124.lock")
    rows = origin_rows(lock)
    assert sum(row.files for row in rows) == len(lock.debian) + len(lock.python_files) + len(lock.sources)
    assert [row.size for row in rows] == sorted((row.size for row in rows), reverse=True)


def test_materials_name_their_origin_and_digest() -> None:
    lock = read_lock(ROOT / "images" / "cpu-ucx.lock")
    rows = {row.name: row for row in package_rows(lock)}
    assert rows["numpy"].origin == "Python package index"
    assert rows["libc6"].origin == "debian:trixie/main"
    assert all(len(row.sha256) == 64 for row in rows.values() if row.kind != "operating-system")
