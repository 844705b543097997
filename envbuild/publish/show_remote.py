"""``envbuild show`` of a published image: its parts and their sizes, its spec and its lock, without its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envbuild.core.result import Result
from envbuild.core.store.store import Store
from envbuild.core.text import amount, counted, printable
from envbuild.oci.sources.platform import Platform
from envbuild.publish.find_squashfs import PublishedSquashfs
from envbuild.publish.published_image import read_documents_of
from envbuild.publish.pull_packs import has_pack
from envbuild.publish.remote_image import report_reading, require_remote
from envbuild.publish.signature_check import list_signatures
from envbuild.publish.signed_documents import AttachedDocument, describe_documents, read_attached
from envbuild.spec.workspace import Workspace

LINES = 100  # of a spec that are printed


def show_remote(text: str, workspace: Workspace, platform: str = "") -> Result:
    """Return what a registry or a layout has of an image. Raises SpecError, InputError, VerifyError, ConflictError."""
    image, wanted = require_remote(text, workspace.site), Platform.of(platform)
    with report_reading(image, workspace.reporter):
        manifest = image.find(wanted)
        signed = list_signatures(image, manifest, workspace)
        found = read_documents_of(image, manifest, wanted, bound=bool(signed.keys))
        provenance, sbom = read_attached(image, found.digest, signed)
    config = found.config.config
    data: dict[str, Any] = {
        "reference": found.reference,
        "digest": found.digest,
        "platform": f"linux/{config.architecture}",
        "layers": [
            {"digest": layer.digest, "size": layer.size, "diff_id": layer.diff_id, "unit": layer.unit}
            for layer in found.layers
        ],
        "bytes": sum(layer.size for layer in found.layers),
        "env": dict(config.env),
        "labels": dict(config.labels),
        "squashfs": describe(found.squashfs, workspace.store) if found.squashfs else None,
        "spec": found.spec,
        "lock": found.lock,
        "resolution": dict(found.resolution),
        "provenance": provenance.value,
        "provenance_signed": provenance.signed,
        "sbom": sbom.value,
        "sbom_signed": sbom.signed,
        "signed_by": signed.keys,
        "other_signatures": [*signed.refused, *signed.foreign],
        "rebuilds": [{"signed_by": key, "equal": equal} for key, equal in signed.rebuilds],
    }
    return Result(data, format_remote(data))


def describe(squashfs: PublishedSquashfs, store: Store) -> dict[str, Any]:
    """Return the parts of a squashfs file, and the bytes of them that a store lacks."""
    document, sizes = squashfs.document, squashfs.sizes
    missing = [pack for pack in document.packs if not has_pack(store, pack)]
    blobs = {document.tables.digest, *(part.digest for pack in missing for part in pack.blobs)}
    return {
        "artifact": squashfs.artifact,
        "name": document.name,
        "architecture": document.architecture,
        "sha256": document.sha256,
        "size": document.size,
        "packs": [{"key": pack.key, "size": pack.size} for pack in document.packs],
        "tables": document.tables.length,
        "missing_bytes": sum(sizes[digest] for digest in blobs if not store.has_blob(digest)),
    }


def format_remote(data: dict[str, Any]) -> str:
    """Return the answer as text."""
    size = amount(data["bytes"]) if data["bytes"] else "not published"
    lines = [
        f"{data['reference']}",
        f"  digest:   {data['digest']}",
        f"  platform: {printable(data['platform'])}",
        f"  layers:   {counted(len(data['layers']), 'layer')}, {size}",
    ]
    lines.append(f"  signed:   {describe_signatures(data['signed_by'], data['other_signatures'])}")
    for one in data["rebuilds"]:
        state = "the same bytes" if one["equal"] else "OTHER bytes"
        lines.append(f"  rebuilt:  {state}, as {printable(one['signed_by'])} signed")
    lines += describe_documents(
        AttachedDocument(data["provenance"], data["provenance_signed"]),
        AttachedDocument(data["sbom"], data["sbom_signed"]),
    )
    found = data["squashfs"]
    if found is None:
        lines.append("  squashfs: none; envbuild pull converts the layers")
        return "\n".join(lines)
    lines += [
        f"  squashfs: {found['name']} ({found['architecture']}), {amount(found['size'])}",
        f"            sha256 {found['sha256']}",
        f"            {counted(len(found['packs']), 'pack')}; {amount(found['missing_bytes'])} not in this store",
    ]
    if data["spec"]:
        lines += ["", *(f"  {printable(line)}" for line in data["spec"].split("\n", LINES)[:LINES])]
    return "\n".join(lines)


def describe_signatures(keys: Sequence[str], others: Sequence[str]) -> str:
    """Return which keys of the site signed an image, and why its other signatures do not count."""
    if not (keys or others):
        return "no"
    known = f"by {', '.join(keys)}" if keys else "by no key of this site"
    reasons = "; ".join(dict.fromkeys(others))
    more = f"; {counted(len(others), 'other signature' if keys else 'signature')}: {reasons}" if others else ""
    return f"{known}{more}"
