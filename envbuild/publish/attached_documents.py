"""Provenance, SBOM and evidence of an image, published as artifacts that belong to it.

Each is an artifact with one layer: a statement of in-toto, a document of CycloneDX, and the evidence that the statement
names by its digest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.build.plan.provenance import PREDICATE
from envbuild.core.errors import EnvbuildError
from envbuild.core.json_text import json_value
from envbuild.core.signing.envelope import BUNDLE
from envbuild.core.signing.statement import Subject, parse_statement
from envbuild.oci import manifest as m
from envbuild.oci.document import InvalidDocumentError, Part
from envbuild.publish.artifact_types import SBOM, STATEMENT
from envbuild.publish.remote_blob import read_blob
from envbuild.publish.remote_image import RemoteImage, entries_of
from envbuild.publish.squashfs_artifact import Artifact, make_artifact, read_slice
from envbuild.verify.provenance import EVIDENCE, ImageDocuments, image_documents

if TYPE_CHECKING:
    from envbuild.export.built_image import BuiltImage
    from envbuild.spec.workspace import Workspace

PREDICATE_TYPE = "dev.sigstore.bundle.predicateType"  # annotation of a bundle (specs/BUNDLE_SPEC.md of cosign)
MOST = 64  # artifacts of one kind that are read
# Bytes of a bundle: the signed SBOM of an image with 1,000 components has 0.9 MB.
LARGEST_BUNDLE = 2 << 20
FEW, LARGEST = 8, 8 << 20  # provenances or SBOMs, which one publisher writes, and bytes of one


@dataclass(frozen=True, slots=True)
class PublishedDocuments:
    """The documents that a place has of an image: the predicate of its `provenance`, and its `sbom`; None where it has
    none, or none that can be read. They are claims: a signature proves them (`envbuild.publish.signature_check`)."""

    provenance: Mapping[str, Any] | None = None
    sbom: Mapping[str, Any] | None = None


def built_documents(image: BuiltImage, workspace: Workspace) -> ImageDocuments:
    """Return the documents of an image of the project, which is verified first where this user has no evidence of its
    file: another member of the group that shares the store may have made it.

    Raises ConflictError, UnknownError, VerifyError."""
    from envbuild.build.engines.embedded.sandbox import warn_without_filter
    from envbuild.verify.evidence import raise_failures  # not for those who read documents, as pull does
    from envbuild.verify.stored_evidence import find_evidence
    from envbuild.verify.verify import verify_built

    evidence, reason = find_evidence(image.record, image.lock, workspace.reporter)
    if evidence is None:
        warn_without_filter(workspace.reporter)
        workspace.reporter.info(f"{image.record.image} is verified first: {reason}")
        _, evidence, _ = verify_built(image, workspace)
    raise_failures(evidence)
    record = image.record
    return image_documents(
        image.resolution, image.lock, image.key.lock, evidence, record.engine, workspace, record.all_caches
    )


def document_artifacts(
    documents: ImageDocuments, subjects: Sequence[Subject], subject: dict[str, Any], name: str, work: Path
) -> list[Artifact]:
    """Return the artifacts with the documents of an image. subjects: what the statement is about; subject: the
    descriptor that they belong to; name: of the image, in file names; work: the folder for their files."""
    contents = [
        (STATEMENT, f"{name}.provenance.json", documents.statement(*subjects)),
        (SBOM, f"{name}.cdx.json", documents.sbom),
        (EVIDENCE, f"{name}.evidence.json", documents.evidence),
    ]
    return [text_artifact(kind, title, content, subject, work) for kind, title, content in contents]


def text_artifact(
    kind: str,
    title: str,
    content: bytes,
    subject: dict[str, Any],
    work: Path,
    annotations: Mapping[str, str] | None = None,
) -> Artifact:
    """Return an artifact of one small document, whose file is written into `work`."""
    path = work / title
    path.write_bytes(content)
    return make_artifact(kind, [(kind, read_slice(path, title))], subject, work, annotations)


def read_documents(image: RemoteImage, digest: str) -> PublishedDocuments:
    """Return the documents that a place has of the image `digest` (``sha256:…``). What is damaged is left out.

    Raises InputError if the place does not answer."""
    statement = bom = None
    for content in read_artifacts(image, digest, STATEMENT):
        try:
            found = parse_statement(content)
        except ValueError:
            continue
        named = digest.removeprefix("sha256:") in found.subjects
        if named and found.kind == PREDICATE and isinstance(found.predicate, dict):
            statement = found.predicate
            break
    for content in read_artifacts(image, digest, SBOM):
        try:
            value = json_value(content)
        except ValueError:
            continue
        if isinstance(value, dict) and value.get("bomFormat") == "CycloneDX":
            bom = value
            break
    return PublishedDocuments(statement, bom)


def read_artifacts(image: RemoteImage, digest: str, kind: str, skipped: Collection[str] = ()) -> Iterator[bytes]:
    """Yield the documents of the artifacts of one kind that belong to the image `digest` (``sha256:…``), the last one
    that is listed first; at most `MOST` bundles, `FEW` of another kind, each once. Those that are damaged, missing or
    too large are left out.

    skipped: types of predicates; bundles that have one of them in the list are not read.

    Raises InputError if the place does not answer."""
    entries = [entry for entry in image.referrers(digest, kind) if predicate_of(entry) not in skipped]
    listed = dict.fromkeys(part.digest for found, part in reversed(list(entries_of(entries))) if found == kind)
    most, largest = (MOST, LARGEST_BUNDLE) if kind == BUNDLE else (FEW, LARGEST)
    for digest in list(listed)[:most]:
        try:
            manifest = Part(image.read(f"sha256:{digest}").value)
            layer = m.parse_descriptor(manifest.part("layers").parts(needed=True)[0])
            if layer.size > largest:
                continue
            content = read_blob(image, layer.digest, layer.size)
        except (EnvbuildError, InvalidDocumentError, IndexError):
            continue
        yield content


def predicate_of(entry: Any) -> str:
    """Return the type of the predicate of a bundle, as the entry in a list states it; empty if it does not."""
    annotations = entry.get("annotations") if isinstance(entry, dict) else None
    found = annotations.get(PREDICATE_TYPE) if isinstance(annotations, dict) else None
    return found if isinstance(found, str) else ""
