"""The provenance and the SBOM of a built image, as files beside it: what it was made of, how it was checked.

They are made again from the lock, the record and the evidence whenever they are needed, with the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.build.plan.embedded_documents import to_json
from envbuild.build.plan.provenance import PREDICATE, provenance
from envbuild.build.plan.sbom import sbom
from envbuild.core.signing.statement import Subject, encode_statement
from envbuild.core.store.store import write_atomic

if TYPE_CHECKING:
    from envbuild.lock.model import Lock
    from envbuild.matrix.answer.verdict import Answer
    from envbuild.spec.resolve import Resolution
    from envbuild.spec.workspace import Workspace
    from envbuild.verify.evidence import Evidence

EVIDENCE = "application/vnd.envbuild.evidence.v1+json"
STABLE = (
    "schema", "image", "lock", "layers", "artifact", "messages", "results", "checked", "inspected_by", "tiers",
    "counts",
)  # fmt: skip
ENDING = ".evidence.json"


@dataclass(frozen=True, slots=True)
class ImageDocuments:
    """The documents of an image: its `sbom`, the `evidence` without what differs between machines, and the predicate of
    its provenance."""

    sbom: bytes
    evidence: bytes
    predicate: Mapping[str, Any]

    def statement(self, *subjects: Subject) -> bytes:
        """Return the statement of the provenance about the image under these names and digests."""
        return encode_statement(subjects, PREDICATE, self.predicate)


def image_documents(
    resolution: Resolution,
    lock: Lock,
    locked: bytes,
    evidence: Evidence | None,
    engine: str,
    workspace: Workspace,
    caches: Iterable[str] = (),
) -> ImageDocuments:
    """Return the documents of an image. locked: the bytes of its lock file. evidence: what `verify` found of it; None:
    it did not run; caches: of its units, as its record names them.

    Raises ConflictError, UnknownError."""
    from envbuild.matrix.facts.compile import load_fact_table  # not for those who read documents, as pull does
    from envbuild.spec.pick_versions import check_locked_versions

    answer = check_locked_versions(
        resolution.spec, resolution.target, load_fact_table(workspace.project.facts()), lock.settled
    )
    stable = stable_evidence(evidence)
    found = {
        "name": f"{lock.image}{ENDING}",
        "mediaType": EVIDENCE,
        "digest": {"sha256": hashlib.sha256(stable).hexdigest()},
        "annotations": {"tiers": evidence.tiers(), "counts": evidence.counts()} if evidence else {},
    }
    byproducts = [found] if evidence else []
    predicate = provenance(resolution, lock, locked, matrix_answer(lock, answer), byproducts, engine, caches)
    return ImageDocuments(to_json(sbom(lock, resolution.contents)).encode(), stable, predicate)


def matrix_answer(lock: Lock, answer: Answer) -> dict[str, Any]:
    """Return the verdict of the facts on the locked versions, with its conditions and the waivers of the image."""
    return {
        "verdict": answer.verdict,
        "facts": list(lock.facts),
        "conditions": [reason.fact for reason in answer.conditions],
        "disputes": [reason.fact for reason in answer.disputes],
        "waivers": [dict(waiver) for waiver in lock.waivers],
    }


def stable_evidence(evidence: Evidence | None) -> bytes:
    """Return evidence without durations, boxes and caches: the same on every machine that had the same results."""
    from envbuild.verify.evidence import evidence_document  # as above

    document = evidence_document(evidence) if evidence else {}
    return to_json({key: value for key, value in document.items() if key in STABLE}).encode()


def write_documents(documents: ImageDocuments, artifact: Path, sha256: str) -> tuple[Path, Path]:
    """Write provenance and SBOM beside the squashfs file; return their paths.

    The names are that of the file with another ending, as that of the evidence.
    """
    made = artifact.with_suffix(".provenance.json"), artifact.with_suffix(".cdx.json")
    statement = documents.statement(Subject(artifact.name, sha256))
    for path, content in zip(made, (statement, documents.sbom), strict=True):
        write_atomic(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
    return made
