"""Signatures of an image as artifacts that belong to it, in the form that cosign 3 writes and verifies.

Signing twice results in the same bytes: nothing has a time, and signatures are deterministic (RFC 6979).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild.build.plan.provenance import PREDICATE
from envbuild.core.errors import SignatureError
from envbuild.core.signing.envelope import BUNDLE, encode_bundle
from envbuild.core.signing.key_file import Signer
from envbuild.core.signing.statement import Subject, encode_statement
from envbuild.core.store.store import Store
from envbuild.core.store.store_folders import find_store_intruder
from envbuild.publish.attached_documents import PREDICATE_TYPE, text_artifact
from envbuild.publish.signature_check import CYCLONEDX, SIGNED
from envbuild.publish.squashfs_artifact import Artifact
from envbuild.verify.provenance import ImageDocuments


def check_signing_store(store: Store) -> None:
    """Check that no other member of a group can replace what the store has of an image that this user signs: records of
    units, packs of layers, its file.

    Also what this user built may contain a pack of another member. Raises SignatureError."""
    if intruder := find_store_intruder(store.root):
        raise SignatureError(
            f"an image of this store cannot be signed: {intruder.path} {intruder.reason}",
            hint="set ENVBUILD_STORE to a folder of your own",
        )


def signature_artifacts(
    signer: Signer,
    name: str,
    subject: dict[str, Any],
    work: Path,
    documents: ImageDocuments | None = None,
    subjects: Sequence[Subject] = (),
) -> list[Artifact]:
    """Return the signature of what is published, and with `documents` the signed provenance and SBOM.

    name: of the image in statements; subject: the descriptor that is signed; subjects: what the provenance is about;
    work: the folder for the files of the artifacts."""
    signed = Subject(name, str(subject["digest"]).removeprefix("sha256:"))
    statements = [(SIGNED, encode_statement([signed], SIGNED, {}))]
    if documents:
        statements.append((PREDICATE, documents.statement(*subjects)))
        statements.append((CYCLONEDX, encode_statement([signed], CYCLONEDX, json.loads(documents.sbom))))
    return [
        bundle_artifact(kind, payload, signer, subject, work / f"signature-{number}")
        for number, (kind, payload) in enumerate(statements)
    ]


def bundle_artifact(kind: str, payload: bytes, signer: Signer, subject: dict[str, Any], work: Path) -> Artifact:
    """Return the artifact with a signed statement; kind: its predicate type; work: a new folder for its file."""
    work.mkdir()
    annotations: Mapping[str, str] = {
        "dev.sigstore.bundle.content": "dsse-envelope",
        PREDICATE_TYPE: kind,
    }
    return text_artifact(BUNDLE, "bundle.json", encode_bundle(payload, signer), subject, work, annotations)
