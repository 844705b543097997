"""Evidence that is read again: what was written, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envbuild.verify.evidence import Evidence, evidence_document, write_evidence
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.stored_evidence import parse_evidence, read_evidence

pytestmark = pytest.mark.unit

EVIDENCE = Evidence(
    image="net",
    lock=f"sha256:{'a' * 64}",
    layers=("sha256:1",),
    artifact=f"sha256:{'b' * 64}",
    messages=("a link was repaired",),
    results=(
        AuditResult("link check", Status.FAIL, "libucp is missing", hint="envbuild make net"),
        AuditResult("ranks start", Status.PASS, "", "run"),
        AuditResult("kernels", Status.NOT_RUN, "no GPU", "gpu"),
    ),
    box={"seccomp": True, "cgroup": False},
    checked=("sha256",),
    inspected_by="python3",
    sources={"base": "cache@sha256:1"},
    seconds={"audit": 2.5},
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read_evidence(write_evidence(EVIDENCE, tmp_path)) == EVIDENCE


def changed(**values: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(evidence_document(EVIDENCE))), **values}


RESULT = {"name": "a", "status": "pass", "tier": "audit"}


@pytest.mark.parametrize(
    "value",
    [
        None, [], "text", 7, {}, changed(schema=2), changed(image=7), changed(lock=None), changed(layers="x"),
        changed(results={}), changed(results=["x"]), changed(results=[{**RESULT, "status": "good"}]),
        changed(results=[{**RESULT, "tier": "moon"}]), changed(results=[{"name": "a"}]), changed(box=[]),
        changed(seconds={"audit": "long"}), changed(seconds={"audit": None}), changed(messages=[7]),
    ],
)  # fmt: skip
def test_another_value_is_no_evidence(value: Any) -> None:
    assert parse_evidence(value) is None
    assert parse_evidence(changed(results=[RESULT])) is not None


def test_files_that_are_no_evidence(tmp_path: Path) -> None:
    assert read_evidence(tmp_path / "none.json") is None
    (tmp_path / "text.json").write_text("{")
    assert read_evidence(tmp_path / "text.json") is None
    (tmp_path / "link.json").symlink_to(write_evidence(EVIDENCE, tmp_path))
    assert read_evidence(tmp_path / "link.json") is None
