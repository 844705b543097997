"""``envbuild show`` of a published image: its parts and their sizes, its spec and its lock, without its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envbuild.core.result import Result
from envbuild.core.store.store import Store
from envbuild.core.text import amount, counted, printable, printable_list
from envbuild.oci.sources.platform import Platform
from envbuild.publish.attached_documents import read_documents
from envbuild.publish.find_squashfs import PublishedSquashfs
from envbuild.publish.published_image import read_documents_of
from envbuild.publish.pull_packs import has_pack
from envbuild.publish.remote_image import report_reading, require_remote
from envbuild.publish.signature_check import list_signatures
from envbuild.spec.workspace import Workspace

LINES = 100  # of a spec that are printed


def show_remote(text: str, workspace: Workspace, platform: str = "") -> Result:
    """Return what a registry or a layout has of an image. Raises SpecError, InputError, VerifyError, ConflictError."""
    image, wanted = require_remote(text, workspace.site), Platform.of(platform)
    with report_reading(image, workspace.reporter):
        manifest = image.find(wanted)
        signed = list_signatures(image, manifest, workspace)
        found = read_documents_of(image, manifest, wanted, bound=bool(signed.keys))
        documents = read_documents(image, found.digest)
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
        "provenance": documents.provenance,
        "sbom": documents.sbom,
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
    lines += describe_documents(data["provenance"], data["sbom"])
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


def describe_documents(provenance: Any, sbom: Any) -> list[str]:
    """Return lines about the provenance and the SBOM of an image: what its publisher states."""
    lines = []
    if provenance is not None:
        builder = value_at(provenance, "runDetails", "builder", "id")
        inputs = value_at(provenance, "buildDefinition", "resolvedDependencies")
        matrix = value_at(provenance, "buildDefinition", "internalParameters", "matrix")
        verdict, waivers = value_at(matrix, "verdict"), value_at(matrix, "waivers")
        facts = f", facts: {printable(str(verdict))[:20]}, {counted(length(waivers), 'waiver')}" if verdict else ""
        lines.append(f"  built by: {printable(str(builder))[:200]}, {counted(length(inputs), 'input')}{facts}")
        caches = value_at(provenance, "buildDefinition", "internalParameters", "caches")
        if length(caches):
            places = [value_at(cache, "at") or "a folder" for cache in caches]
            lines.append(f"  units of: {printable_list(places)}")
    if sbom is not None:
        version = printable(str(sbom.get("specVersion")))[:20]
        lines.append(f"  SBOM:     {counted(length(sbom.get('components')), 'component')}, CycloneDX {version}")
    return lines


def value_at(value: Any, *keys: str) -> Any:
    """Return a value in an object of a stranger; None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def length(value: Any) -> int:
    """Return the number of entries of a list of a stranger; 0 for anything else."""
    return len(value) if isinstance(value, list) else 0
