"""Evidence of images in a store that a group shares: what another member can write there is not published."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import VerifyError
from envbuild.core.store.records import write_record
from envbuild.core.store.store import Store
from envbuild.export.built_image import BuiltImage, ImageRecord, read_image_record, read_key
from envbuild.lock.lockfile import read_lock
from envbuild.lock.model import lock_digest
from envbuild.lock.resolve import resolve_image
from envbuild.net.site import Site
from envbuild.publish.attached_documents import built_documents
from envbuild.spec.project import Project
from envbuild.spec.workspace import Workspace
from envbuild.verify.evidence import Evidence, write_evidence
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.stored_evidence import find_evidence, write_own_evidence
from tests.support.command import ROOT

pytestmark = pytest.mark.unit

OWN = AuditResult("link check", Status.PASS, "4 files")
FORGED = AuditResult("NCCL over 8 GPUs", Status.PASS, "480 GB/s", "gpu")


def make_store(folder: Path, mode: int) -> Store:
    folder.mkdir()
    folder.chmod(mode)
    return Store.open(folder)


@pytest.fixture
def shared(tmp_path: Path) -> Store:
    return make_store(tmp_path / "shared", 0o3775)


def made_image(store: Store) -> tuple[BuiltImage, Workspace]:
    """Return an image as it is read from the record of a build that verified it."""
    at = Workspace(Project.find(ROOT), Site(store.root), store, SilentReporter())
    resolution, lock = resolve_image("cpu-ucx", at), read_lock(ROOT / "images/cpu-ucx.lock")
    artifact = store.root / "artifacts" / f"cpu-ucx-{lock_digest(lock)[7:19]}.sqsh"
    artifact.write_bytes(b"squashfs")
    sha256, evidence = hashlib.sha256(b"squashfs").hexdigest(), artifact.with_suffix(".evidence.json")
    made = ImageRecord(
        "cpu-ucx", str(artifact), sha256, lock_digest(lock), "embedded", (), str(evidence), (), (), (), 1.0
    )
    key = read_key(resolution, at)
    assert key
    write_record(key.path, asdict(made))
    found, plan = read_image_record(resolution, at, verified=True), None
    assert found
    return BuiltImage(resolution, lock, plan, found, (), key), at  # type: ignore[arg-type]


def evidence_of(image: BuiltImage, *results: AuditResult) -> Evidence:
    return Evidence("cpu-ucx", lock_digest(image.lock), (), f"sha256:{image.record.sha256}", results=results)


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let `verify` find OWN; return the list of images that it then verified."""
    names: list[str] = []

    def verify_built(image: BuiltImage, workspace: Workspace) -> tuple[Path, Evidence, dict[str, Any]]:
        names.append(image.record.image)
        return Path(), evidence_of(image, OWN), {}

    monkeypatch.setattr("envbuild.verify.verify.verify_built", verify_built)
    return names


def test_evidence_that_a_member_of_the_group_wrote_is_not_published(shared: Store, verified: list[str]) -> None:
    image, at = made_image(shared)
    write_evidence(evidence_of(image, OWN, FORGED), shared.root / "artifacts")
    documents = built_documents(image, at)
    assert verified == ["cpu-ucx"] and FORGED.name.encode() not in documents.evidence
    (found,) = documents.predicate["runDetails"]["byproducts"]
    assert found["annotations"]["counts"]["gpu"]["pass"] == 0


def test_a_link_in_the_place_of_evidence_publishes_no_file_of_this_user(
    shared: Store, verified: list[str], tmp_path: Path
) -> None:
    image, at = made_image(shared)
    private = tmp_path / "private.json"
    private.write_text(json.dumps({"messages": ["SECRET"], "results": ["SECRET"]}))
    (shared.root / "artifacts" / evidence_of(image).file_name).symlink_to(private)
    assert b"SECRET" not in built_documents(image, at).evidence and verified == ["cpu-ucx"]


@pytest.mark.parametrize("mode", [0o3775, 0o755])
def test_an_image_that_this_user_verified_is_not_verified_again(mode: int, tmp_path: Path, verified: list[str]) -> None:
    store = make_store(tmp_path / "store", mode)
    write_own_evidence(evidence_of(made_image(store)[0], OWN), store)
    image, at = made_image(store)
    assert Path(image.record.evidence).parent == store.own / "artifacts"
    assert OWN.name.encode() in built_documents(image, at).evidence and verified == []


def test_evidence_of_other_bytes_is_not_published(shared: Store, verified: list[str]) -> None:
    image, _ = made_image(shared)
    write_own_evidence(replace(evidence_of(image, OWN, FORGED), artifact=f"sha256:{'0' * 64}"), shared)
    assert FORGED.name.encode() not in built_documents(*made_image(shared)).evidence and verified == ["cpu-ucx"]


def test_a_file_that_a_member_of_the_group_replaced_is_verified_again(
    shared: Store, verified: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size and its time are what that member made them."""
    write_own_evidence(evidence_of(made_image(shared)[0], OWN), shared)
    image, at = made_image(shared)
    artifact = Path(image.record.artifact)
    times = artifact.stat().st_mtime_ns
    artifact.unlink()
    artifact.write_bytes(b"squashfS")
    os.utime(artifact, ns=(times, times))
    found = read_image_record(image.resolution, at)
    assert found and find_evidence(found, image.lock, at.reporter) == (None, "another user replaced the file")
    assert built_documents(image, at) and verified == ["cpu-ucx"]
    artifact.write_bytes(b"squashfs")  # the same bytes, made by a member
    assert find_evidence(found, image.lock, at.reporter)[1] == ""
    artifact.unlink()
    assert find_evidence(found, image.lock, at.reporter)[0] is None


def test_evidence_of_a_failure_is_not_published(shared: Store, verified: list[str]) -> None:
    """A record that another member wrote again names it as that of a verified image."""
    failed = AuditResult("one copy", Status.FAIL, "two of libucp")
    write_own_evidence(evidence_of(made_image(shared)[0], failed), shared)
    with pytest.raises(VerifyError, match="two of libucp"):
        built_documents(*made_image(shared))
    assert verified == []


def test_an_image_that_fails_is_not_published(shared: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = AuditResult("one copy", Status.FAIL, "two of libucp")
    image, at = made_image(shared)
    monkeypatch.setattr("envbuild.verify.verify.verify_built", lambda *_: (None, evidence_of(image, failed), {}))
    with pytest.raises(VerifyError, match="two of libucp"):
        built_documents(image, at)
