"""The provenance of an image in /etc/envbuild: spec, lock, resolution, SBOM. Pure text, so that it is the same on
every machine."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envbuild.lock.model import Lock, SourceFile
    from envbuild.spec.resolve import Resolution


def documents(resolution: Resolution, lock: Lock) -> dict[str, str]:
    """Return file name → content."""
    from envbuild.lock.lockfile import dump_lock

    remarks = resolution.remarks()
    return {
        "spec.yaml": resolution.spec.text,
        # An image does not depend on the dates of archives, so that locks that differ in these make the same bytes.
        "lock.yaml": dump_lock(replace(lock, releases={})),
        "resolution.json": to_json(
            {
                "image": lock.image,
                "target": resolution.target.name,
                "order": list(resolution.order),
                "versions": dict(lock.versions),
                "chosen": dict(lock.chosen),
                "waivers": [dict(waiver) for waiver in lock.waivers],
                "facts": list(lock.facts),
                **({"remarks": remarks} if remarks else {}),
            }
        ),
        "sbom.cdx.json": to_json(sbom(lock)),
    }


def sbom(lock: Lock) -> dict[str, object]:
    """Return CycloneDX 1.6 of everything that the lock names for the image itself (build-only inputs excluded).

    Serial number and time come from the lock, so that two builds give one text.
    """
    components: list[dict[str, object]] = []
    for file in sorted({file for unit in lock.image_units() for file in unit.debian}):
        deb = lock.debian[file]
        purl = f"pkg:deb/debian/{deb.name}@{deb.version.replace(':', '%3A')}?arch={lock.arch}"
        components.append(component(deb.name, deb.version, purl, deb.sha256))
    for file in sorted(lock.image_python()):
        package = lock.python_files[file]
        components.append(
            component(package.name, package.version, f"pkg:pypi/{package.name}@{package.version}", package.sha256)
        )
    for source in sorted(lock.sources.values(), key=lambda item: item.file):
        components += source_components(source)
    if lock.base_image:
        name, digest = lock.base_image.reference, lock.base_image.digest
        purl = f"pkg:oci/{name.split('@')[0].split(':')[0].rpartition('/')[2]}@sha256%3A{digest}"
        components.append({**component(name, f"sha256:{digest}", purl, digest), "type": "container"})
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, lock.inputs)}",
        "metadata": {"component": {"type": "container", "name": lock.image, "bom-ref": lock.image}},
        "components": components,
    }


def source_components(source: SourceFile) -> list[dict[str, object]]:
    """Return a source as components: the file, or the commit and those of its submodules."""
    if not source.git:
        return [component(source.file, "", "", source.sha256)]
    found = []
    for origin in (source.origin, *source.submodules.values()):
        repository, _, commit = origin.rpartition("@")
        kind, _, path = repository.partition(":")
        purl = f"pkg:{kind}/{path.lower()}@{commit}" if kind in ("github", "gitlab") else ""
        found.append(component(path, commit, purl, source.sha256 if origin == source.origin else ""))
    return found


def component(name: str, version: str, purl: str, sha256: str) -> dict[str, object]:
    value: dict[str, object] = {"type": "library", "name": name}
    if sha256:
        value["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    if version:
        value["version"] = version
    if purl:
        value |= {"purl": purl, "bom-ref": purl}
    return value


def to_json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
