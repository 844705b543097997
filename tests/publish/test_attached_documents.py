"""Provenance and SBOM that belong to a published image: sent as artifacts, shown, and left out where they are not what
they claim to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.signing.statement import Subject
from envbuild.lock.lockfile import read_lock
from envbuild.lock.resolve import resolve_image
from envbuild.net.site import Site
from envbuild.publish.artifact_types import SBOM, STATEMENT
from envbuild.publish.attached_documents import document_artifacts, text_artifact
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.show_remote import show_remote
from envbuild.publish.squashfs_artifact import Artifact
from envbuild.spec.project import Project
from envbuild.spec.workspace import Workspace
from envbuild.verify.evidence import Evidence
from envbuild.verify.provenance import ImageDocuments, image_documents
from envbuild.verify.results import AuditResult, Status
from tests.support.command import ROOT
from tests.support.foreign_images import layers, workspace
from tests.support.local_registry import Server, skopeo
from tests.support.published import built, publish, publish_folder

pytestmark = pytest.mark.registry
EVIDENCE = Evidence("cpu-ucx", "", (), "", results=(AuditResult("link check", Status.PASS, "4 files"),))


def documents(folder: Path) -> ImageDocuments:
    at = Workspace(Project.find(ROOT), Site(folder), workspace(folder).store, SilentReporter())
    lock = read_lock(ROOT / "images/cpu-ucx.lock")
    return image_documents(resolve_image("cpu-ucx", at), lock, b"lock", EVIDENCE, "embedded", at)


def with_documents(folder: Path, subject: str = "") -> tuple[ImageParts, list[Artifact]]:
    """Return an image with its artifacts; subject: of the statement, instead of its digest (hex)."""
    parts, artifacts, sha256 = built(folder, layers())
    subjects = [Subject("app", subject or parts.digest.removeprefix("sha256:")), Subject("app.sqsh", sha256)]
    made = document_artifacts(documents(folder / "at"), subjects, parts.subject, "app", folder / "work")
    return parts, [*artifacts, *made]


@pytest.mark.parametrize("kind", ["registry", "folder"])
def test_show_prints_provenance_and_sbom_of_an_image(tmp_path: Path, registry: Server, kind: str) -> None:
    parts, artifacts = with_documents(tmp_path / "a")
    if kind == "registry":
        publish(parts, artifacts, f"{registry.host}/app:1")
        name = f"docker://{registry.host}/app:1"
        assert publish(parts, artifacts, f"{registry.host}/app:1").sent == 0
    else:
        publish_folder(parts, artifacts, tmp_path / "shared", "1")
        name = f"oci:{tmp_path}/shared:1"
    found = show_remote(name, workspace(tmp_path / "b"))
    inputs = found.data["provenance"]["buildDefinition"]["resolvedDependencies"]
    lock = read_lock(ROOT / "images/cpu-ucx.lock")
    assert len(inputs) >= len(lock.debian) + len(lock.python_files)
    assert found.data["sbom"]["bomFormat"] == "CycloneDX" and found.data["sbom"]["components"]
    assert "built by: urn:envbuild:builder:local" in found.text and "CycloneDX 1.6" in found.text


def test_other_programs_find_the_artifacts_in_the_list(tmp_path: Path, registry: Server) -> None:
    parts, artifacts = with_documents(tmp_path / "a")
    publish(parts, artifacts, f"{registry.host}/app:1")
    tag = parts.digest.replace(":", "-")
    listed = json.loads(skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{registry.host}/app:{tag}"))
    kinds = [entry["artifactType"] for entry in listed["manifests"]]
    assert {STATEMENT, SBOM, "application/vnd.envbuild.evidence.v1+json"} <= set(kinds)
    manifest = json.loads(artifacts[1].manifest)
    assert manifest["subject"]["digest"] == parts.digest and manifest["layers"][0]["mediaType"] == STATEMENT


def wrong(kind: str, content: bytes, parts: ImageParts, work: Path) -> Artifact:
    work.mkdir()
    return text_artifact(kind, "document", content, parts.subject, work)


def test_documents_of_another_image_and_damaged_ones_are_left_out(tmp_path: Path, registry: Server) -> None:
    parts, artifacts = with_documents(tmp_path / "a", subject="b" * 64)
    bad = [
        wrong(STATEMENT, b'{"_type":"https://in-toto.io/Statement/v1","subject":3}', parts, tmp_path / "1"),
        wrong(STATEMENT, b"[" * 100_000, parts, tmp_path / "2"),
        wrong(SBOM, b'{"bomFormat":"SPDX"}', parts, tmp_path / "3"),
    ]
    kept = [item for item in artifacts if item.kind != SBOM]
    publish(parts, [*kept, *bad], f"{registry.host}/app:1")
    found: dict[str, Any] = show_remote(f"docker://{registry.host}/app:1", workspace(tmp_path / "b")).data
    assert found["provenance"] is None and found["sbom"] is None and found["squashfs"]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"buildDefinition": []},
        {"runDetails": {"builder": 3}, "buildDefinition": {"internalParameters": {"matrix": 1}}},
    ],
)
def test_show_prints_what_it_can_read_of_the_predicate_of_a_stranger(tmp_path: Path, value: dict[str, Any]) -> None:
    from envbuild.publish.signed_documents import AttachedDocument, describe_documents

    (line,) = describe_documents(AttachedDocument(value, False), AttachedDocument(None, False))
    assert "0 inputs" in line
