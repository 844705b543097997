"""The provenance of an image: a predicate of SLSA v1 (slsa-framework/slsa, spec/build-provenance.md).

Pure, and the same bytes for the same lock, builder and evidence: it has no time, and no host, path or user of the
machine that built. `resolvedDependencies` is the lock: every input, also those that only builds use.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from envbuild import __version__
from envbuild.build.plan.embedded_documents import dev_rows
from envbuild.build.plan.sbom import (
    HOSTS,
    base_component,
    debian_component,
    dev_component,
    python_component,
    source_components,
)

if TYPE_CHECKING:
    from envbuild.lock.model import Lock, SourceFile
    from envbuild.spec.dev_project import DevContent
    from envbuild.spec.resolve import Resolution

PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:envbuild:build:v1"  # docs/signatures.md describes its parameters
LOCAL_BUILDER = "urn:envbuild:builder:local"
WORKFLOW = re.compile(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+/\.github/workflows/[^@\s]+@[^\s]+")
RECORDED = re.compile(r"(?P<at>(?P<folder>/)?.*?)(?:#(?P<key>[0-9a-f]{16}))?", re.DOTALL)  # UnitCache.names
SERVER = re.compile(r"https://[A-Za-z0-9.:-]+")


def builder_id(environment: Mapping[str, str]) -> str:
    """Return who built: the workflow of a job of GitHub Actions (its variables GITHUB_SERVER_URL and
    GITHUB_WORKFLOW_REF), else the one name for every other machine. A signature proves it, the name alone does not."""
    server, workflow = environment.get("GITHUB_SERVER_URL", ""), environment.get("GITHUB_WORKFLOW_REF", "")
    running = environment.get("GITHUB_ACTIONS") == "true"
    if running and SERVER.fullmatch(server) and WORKFLOW.fullmatch(workflow):
        return f"{server}/{workflow}"
    return LOCAL_BUILDER


def provenance(
    resolution: Resolution,
    lock: Lock,
    lock_file: bytes,
    matrix: Mapping[str, Any],
    byproducts: Iterable[Mapping[str, Any]],
    engine: str,
    caches: Iterable[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """Return the predicate of an image.

    lock_file: the bytes of the lock as they are published. matrix: what the facts state about the locked versions.
    byproducts: descriptors of what was made beside the image, such as its evidence. caches: of its units, as records
    name them.
    """
    spec = resolution.spec
    text = spec.text.encode()
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "image": lock.image,
                "target": resolution.target.name,
                "spec": {"name": spec.path.name, "digest": digest_set(text)},
                "lock": {"name": f"{lock.image}.lock", "digest": digest_set(lock_file)},
            },
            "internalParameters": {
                "engine": engine,
                "epoch": lock.epoch,
                "inputs": lock.inputs,
                "lockedBy": dict(lock.tools),
                "matrix": dict(matrix),
                "versions": dict(lock.versions),
                **({"dev": dev} if (dev := dev_rows(resolution)) else {}),
                **({"caches": rows} if (rows := cache_rows(caches)) else {}),
            },
            "resolvedDependencies": list(dependencies(lock, resolution.contents)),
        },
        "runDetails": {
            "builder": {"id": builder_id(environment), "version": {"envbuild": __version__}},
            "byproducts": [dict(item) for item in byproducts],
        },
    }


def cache_rows(names: Iterable[str]) -> list[dict[str, str]]:
    """Return the caches of units: the repository, and the beginning of the digest of the key that signed the units
    (empty: none did). A folder has no name here: its path is one of this machine."""
    found = [RECORDED.fullmatch(name) for name in sorted(set(names))]
    return [{"at": "" if name["folder"] else name["at"], "key": name["key"] or ""} for name in found if name]


def dependencies(lock: Lock, contents: Iterable[DevContent] = ()) -> Iterator[dict[str, Any]]:
    """Yield every input of a lock as a resource descriptor (in-toto/attestation, spec/v1/resource_descriptor.md), the
    base image first, then by kind and name. contents: of project folders."""
    if base := lock.base_image:
        yield {
            "name": base.reference,
            "uri": base_component(base, lock.arch)["purl"],
            "digest": {"sha256": base.digest},
        }
    for _, deb in sorted(lock.debian.items()):
        yield {
            "name": deb.file,
            "uri": debian_component(deb, lock.distribution)["purl"],
            "digest": {"sha256": deb.sha256},
            "annotations": {"origin": deb.archive},
        }
    for _, file in sorted(lock.python_files.items()):
        yield {
            "name": file.file,
            "uri": python_component(file)["purl"],
            "digest": {"sha256": file.sha256},
            **({"annotations": {"origin": file.origin}} if file.origin else {}),
        }
    for _, source in sorted(lock.sources.items()):
        yield from source_dependencies(source)
    for content in contents:
        component = dev_component(content)
        yield {"name": component["name"], "uri": component["purl"], "digest": {"sha256": content.sha256}}


def source_dependencies(source: SourceFile) -> Iterator[dict[str, Any]]:
    """Yield a source: the file, or the commit with the digest of the archive that envbuild makes of it, and the commits
    of its submodules."""
    if not source.git:
        (component,) = source_components(source)
        yield {
            "name": source.file,
            "uri": component["purl"],
            "digest": {"sha256": source.sha256},
            "annotations": {"origin": source.origin},
        }
        return
    for origin in (source.origin, *source.submodules.values()):
        repository, _, commit = origin.rpartition("@")
        kind, _, path = repository.partition(":")
        own = origin == source.origin
        yield {
            "name": source.file if own else path,
            "uri": f"git+{HOSTS.get(kind, '')}{path}@{commit}",
            "digest": {"gitCommit": commit},
            "annotations": {"origin": origin, **({"archive": f"sha256:{source.sha256}"} if own else {})},
        }


def digest_set(content: bytes) -> dict[str, str]:
    """Return the digests of a content (in-toto/attestation, spec/v1/digest_set.md)."""
    return {"sha256": hashlib.sha256(content).hexdigest()}
