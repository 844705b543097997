"""The provenance of an image: every input of its lock, the same bytes everywhere, and nothing of the machine."""

from __future__ import annotations

import json
import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.plan.provenance import LOCAL_BUILDER, builder_id, dependencies, source_dependencies
from envbuild.core.console import SilentReporter
from envbuild.core.signing.statement import Subject, parse_statement
from envbuild.core.store.store import Store
from envbuild.lock.lockfile import read_lock
from envbuild.lock.model import SourceFile
from envbuild.lock.resolve import resolve_image
from envbuild.net.site import Site
from envbuild.spec.project import Project
from envbuild.spec.workspace import Workspace
from envbuild.verify.evidence import Evidence
from envbuild.verify.provenance import ImageDocuments, image_documents, stable_evidence
from envbuild.verify.results import AuditResult, Status
from tests.support.command import ROOT

pytestmark = pytest.mark.unit
LOCKS = sorted((ROOT / "images").glob("*.lock"))
SHA256, COMMIT = "a" * 64, "0123456789abcdef0123456789abcdef01234567"
RESULTS = (AuditResult("link check", Status.PASS, "4 files"), AuditResult("one copy", Status.PASS, "of libucp"))
EVIDENCE = Evidence(
    "x", "", (), "", results=RESULTS, seconds={"audit": 1.5}, box={"seccomp": True}, sources={"a": "cache@1"}
)


def documents(name: str, folder: Path, **changes: Any) -> ImageDocuments:
    at = Workspace(Project.find(ROOT), Site(folder), Store(folder), SilentReporter())
    resolution = resolve_image(name, at)
    lock = read_lock(ROOT / "images" / f"{name}.lock")
    locked = (ROOT / "images" / f"{name}.lock").read_bytes()
    return image_documents(resolution, lock, locked, replace(EVIDENCE, **changes), "embedded", at)


@pytest.mark.parametrize("path", LOCKS, ids=[path.stem for path in LOCKS])
def test_every_locked_input_is_a_dependency(path: Path) -> None:
    lock = read_lock(path)
    found = list(dependencies(lock))
    names = [item["name"] for item in found]
    assert {*lock.debian, *lock.python_files, *lock.sources} <= set(names)
    digests = {item["digest"].get("sha256") for item in found}
    assert {file.sha256 for file in (*lock.debian.values(), *lock.python_files.values())} <= digests
    assert all(item["digest"] and item["uri"].partition(":")[0] in ("pkg", "git+https") for item in found)


def test_a_commit_is_named_with_its_submodules_and_the_archive_of_it() -> None:
    origin, module = f"github:openucx/ucx@{COMMIT}", f"github:NVIDIA/cutlass@{COMMIT[::-1]}"
    source = SourceFile("ucx.tar", origin, SHA256, git=True, submodules={"third_party/cutlass": module})
    ucx, cutlass = source_dependencies(source)
    assert ucx["uri"] == f"git+https://github.com/openucx/ucx@{COMMIT}" and ucx["digest"] == {"gitCommit": COMMIT}
    assert ucx["annotations"]["archive"] == f"sha256:{SHA256}" and "archive" not in cutlass["annotations"]
    assert cutlass["digest"] == {"gitCommit": COMMIT[::-1]}


def test_the_bytes_do_not_depend_on_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another store and user, other durations, boxes and caches: the same statement. Another result: another one."""
    subject = Subject("x.sqsh", SHA256)
    first = documents("cpu-ucx", tmp_path / "a").statement(subject)
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.setenv("HOSTNAME", "elsewhere.example")
    other = documents("cpu-ucx", tmp_path / "b", seconds={"audit": 9.0}, box={}, sources={})
    assert other.statement(subject) == first
    assert documents("cpu-ucx", tmp_path, results=RESULTS[:1]).statement(subject) != first
    text = first.decode()
    for secret in (str(tmp_path), str(ROOT), os.environ["HOME"], "somebody", "elsewhere.example"):
        assert secret not in text


def test_the_statement_names_builder_verdict_waivers_and_evidence(tmp_path: Path) -> None:
    made = documents("cpu-ucx", tmp_path)
    content = made.statement(Subject("x.sqsh", SHA256))
    read = parse_statement(content)
    assert read.subjects == (SHA256,) and read.kind == "https://slsa.dev/provenance/v1"
    build, run = read.predicate["buildDefinition"], read.predicate["runDetails"]
    matrix = build["internalParameters"]["matrix"]
    lock = read_lock(ROOT / "images/cpu-ucx.lock")
    assert matrix["verdict"] in ("valid", "conditional") and matrix["facts"] == list(lock.facts)
    assert matrix["waivers"] == list(lock.waivers) and run["builder"]["id"] == LOCAL_BUILDER
    (evidence,) = run["byproducts"]
    assert evidence["annotations"]["tiers"]["audit"] == "passed"
    assert evidence["annotations"]["counts"]["audit"] == {"pass": 2, "fail": 0, "not-run": 0}
    assert evidence["digest"]["sha256"] and json.loads(made.evidence)["counts"] == EVIDENCE.counts()
    assert b"seconds" not in stable_evidence(EVIDENCE)


def test_the_statement_names_the_caches_of_units_and_no_folder(tmp_path: Path) -> None:
    at = Workspace(Project.find(ROOT), Site(tmp_path), Store(tmp_path), SilentReporter())
    lock, resolution = read_lock(ROOT / "images/cpu-ucx.lock"), resolve_image("cpu-ucx", at)
    names = ("ghcr.io/team/cache#0123456789abcdef", "ghcr.io/team/open", "/shared/some#body/cache#0123456789abcdef")
    made = image_documents(resolution, lock, b"lock", EVIDENCE, "embedded", at, names)
    found = made.predicate["buildDefinition"]["internalParameters"]["caches"]
    assert found == [
        {"at": "", "key": "0123456789abcdef"},
        {"at": "ghcr.io/team/cache", "key": "0123456789abcdef"},
        {"at": "ghcr.io/team/open", "key": ""},
    ]
    assert b"some#body" not in made.statement(Subject("x.sqsh", SHA256))
    none = image_documents(resolution, lock, b"lock", EVIDENCE, "embedded", at).predicate
    assert "caches" not in none["buildDefinition"]["internalParameters"]


def test_a_builder_is_a_workflow_only_in_a_job_of_it() -> None:
    job = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_WORKFLOW_REF": "acme/images/.github/workflows/build.yml@refs/heads/main",
    }
    assert builder_id(job) == "https://github.com/acme/images/.github/workflows/build.yml@refs/heads/main"
    for change in (
        {"GITHUB_ACTIONS": ""},
        {"GITHUB_SERVER_URL": "https://u:secret@host"},
        {"GITHUB_WORKFLOW_REF": "x"},
    ):
        assert builder_id({**job, **change}) == LOCAL_BUILDER


def test_provenance_and_sbom_of_a_large_image_take_little_time(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    documents("h100-nccl", tmp_path).statement(Subject("x.sqsh", SHA256))
    after = resource.getrusage(resource.RUSAGE_SELF)
    # a loaded machine; docs/signatures.md: 0.1 s
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 3
