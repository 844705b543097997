"""Provenance and SBOM of a published image: those that a key of the site signed, else those that the place states.

Who can write to a registry, or runs a mirror of it, can list any document for an image. A document that is not signed
is shown as such, also beside a signature of the image itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envbuild.build.plan.provenance import PREDICATE
from envbuild.core.text import counted, printable, printable_list
from envbuild.publish.attached_documents import read_documents
from envbuild.publish.remote_image import RemoteImage
from envbuild.publish.signature_check import CYCLONEDX, SignatureReport


@dataclass(frozen=True, slots=True)
class AttachedDocument:
    """A document that belongs to an image (None: there is none), and whether a listed key signed it."""

    value: Mapping[str, Any] | None
    signed: bool

    @property
    def state(self) -> str:
        """Return ``none``, ``signed`` or ``not signed``."""
        return "none" if self.value is None else "signed" if self.signed else "not signed"


def read_attached(
    image: RemoteImage, digest: str, report: SignatureReport
) -> tuple[AttachedDocument, AttachedDocument]:
    """Return the provenance (its predicate) and the SBOM of the image `digest` (``sha256:…``).

    report: with the attestations of that image. Raises InputError if the place does not answer."""
    stated = read_documents(image, digest)
    return signed_or_stated(report, PREDICATE, stated.provenance), signed_or_stated(report, CYCLONEDX, stated.sbom)


def signed_or_stated(report: SignatureReport, kind: str, stated: Mapping[str, Any] | None) -> AttachedDocument:
    """Return the predicate of a kind that a listed key signed; what the place states if none did."""
    found = report.attested.get(kind)
    return AttachedDocument(found, True) if isinstance(found, dict) else AttachedDocument(stated, False)


def describe_documents(stated: AttachedDocument, bom: AttachedDocument) -> list[str]:
    """Return lines about the provenance and the SBOM of an image: what its publisher states, or who can write to the
    place that has it."""
    lines, provenance, sbom = [], stated.value, bom.value
    if provenance is not None:
        builder = value_at(provenance, "runDetails", "builder", "id")
        inputs = value_at(provenance, "buildDefinition", "resolvedDependencies")
        matrix = value_at(provenance, "buildDefinition", "internalParameters", "matrix")
        verdict, waivers = value_at(matrix, "verdict"), value_at(matrix, "waivers")
        facts = f", facts: {printable(str(verdict))[:20]}, {counted(length(waivers), 'waiver')}" if verdict else ""
        lines.append(
            f"  built by: {printable(str(builder))[:200]}, {counted(length(inputs), 'input')}{facts}{mark(stated)}"
        )
        caches = value_at(provenance, "buildDefinition", "internalParameters", "caches")
        if length(caches):
            places = [value_at(cache, "at") or "a folder" for cache in caches]
            lines.append(f"  units of: {printable_list(places)}")
    if sbom is not None:
        version = printable(str(sbom.get("specVersion")))[:20]
        lines.append(
            f"  SBOM:     {counted(length(sbom.get('components')), 'component')}, CycloneDX {version}{mark(bom)}"
        )
    return lines


def mark(document: AttachedDocument) -> str:
    """Return what follows a line about a document that no listed key signed."""
    return "" if document.signed else " (not signed)"


def value_at(value: Any, *keys: str) -> Any:
    """Return a value in an object of a stranger; None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def length(value: Any) -> int:
    """Return the number of entries of a list of a stranger; 0 for anything else."""
    return len(value) if isinstance(value, list) else 0
