"""The inputs of a lock, where they come from on this machine, and the finding for one that is not available.

Every input has an origin (``debian:trixie/main``, ``python:``, ``pip:pytorch/cu113``, ``github:openucx/ucx@…``,
``oci:nvcr.io/nvidia/pytorch``), and a site maps origins to places (`envbuild.net.site`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envbuild.core.distributions import find_distribution, is_image, is_local_image
from envbuild.core.errors import Finding, SpecError
from envbuild.core.shell import shell_word
from envbuild.lock.model import BaseImage, DebianFile, Lock, PythonFile, SourceFile
from envbuild.lock.request import LockRequest
from envbuild.net.miss import Miss, MissKind, all_absent
from envbuild.net.registry.reference import mirror_reference, parse_reference
from envbuild.net.site import Site, mirror_line, mirrors_setting
from envbuild.net.supply import SupplyKind


@dataclass(frozen=True, slots=True)
class ImageBlob:
    """A blob of a base image: `part` is manifest, config or layer; `file` its name in an OCI layout (the digest)."""

    file: str
    reference: str
    part: str
    sha256: str
    size: int = 0  # 0: the lock has no size


Input = DebianFile | PythonFile | SourceFile | ImageBlob


def list_inputs(lock: Lock, *, manifest: bool = False) -> list[Input]:
    """Return every input of `lock`.

    manifest: with the manifest of the base image, which a build does not use, but a copy of the image needs
    """
    found: list[Input] = [*lock.debian.values(), *lock.python_files.values(), *lock.sources.values()]
    if lock.base_image:
        found += image_blobs(lock.base_image, manifest=manifest)
    return found


def image_blobs(image: BaseImage, *, manifest: bool = False) -> list[ImageBlob]:
    """Return the blobs of a base image."""
    parts = [("manifest", image.digest, 0)] if manifest else []
    parts += [("config", image.config, 0), *(("layer", digest, size) for digest, size, _ in image.layers)]
    reference = mirror_reference(image.reference, image.digest)
    return [ImageBlob(digest, reference, part, digest, size) for part, digest, size in parts]


def input_origin(entry: Input) -> str:
    """Return the origin under which a site has this input."""
    if isinstance(entry, DebianFile):
        return entry.archive
    if isinstance(entry, PythonFile):
        return entry.origin or "python:"
    return parse_reference(entry.reference).origin if isinstance(entry, ImageBlob) else entry.origin


def supplier(site: Site, origin: str) -> str:
    """Return the source of an origin on this machine.

    ``mirror``: the site names one, or the machine's own configuration of apt and pip does; ``network``: its public
    home; empty: none.
    """
    supply = site.supply(origin)
    if supply.by is SupplyKind.SITE:
        return "mirror" if supply.places else ""
    return {SupplyKind.HOST: "mirror", SupplyKind.PUBLIC: "network"}.get(supply.by, "")


def requested_origins(request: LockRequest) -> list[str]:
    """Return the origins that a lock of this image takes its inputs from, as far as they are known before it is made
    (not those of submodules).
    """
    units = request.units.values()
    found = {archive.origin for unit in units for archive in unit.archives}
    found |= {source.origin for unit in units for source in unit.git}
    found |= {project.origin for unit in units for project in unit.projects}
    found |= {repository.origin for repository in request.repositories}
    found |= {index.origin for index in request.indexes} | {"python:"}
    try:
        archives: Sequence[str] = find_distribution(request.distribution or request.base).archives
    except SpecError:
        archives = ()
    found.update(archives[:1])
    if is_image(request.base) and not is_local_image(request.base):
        found.add(parse_reference(request.base).origin)
    return sorted({name.partition("@")[0] for name in found})


def describe_input(entry: Input) -> str:
    """Return an input as messages name it."""
    if isinstance(entry, ImageBlob):
        return f"the {entry.part} of {entry.reference} (sha256 {entry.sha256})"
    if isinstance(entry, SourceFile):
        return f"the source {entry.origin} ({entry.file}, sha256 {entry.sha256})"
    kind = "Debian package" if isinstance(entry, DebianFile) else "Python file"
    return f"the {kind} {entry.name} {entry.version} ({entry.file}, sha256 {entry.sha256})"


def not_found_finding(image: str, entry: Input, misses: Sequence[Miss]) -> Finding:
    """Return the finding for a package or file that no place provided; `misses` have the cause of each."""
    tried = "".join(f"\n  {miss}" for miss in misses)
    action = "run the command again"
    if isinstance(entry, DebianFile | PythonFile) and any(miss.kind is MissKind.ABSENT for miss in misses):
        newer = f"envbuild lock {image} --upgrade {shell_word(entry.name)}"
        action = newer if all_absent(misses) else f"{newer}, or {action}"  # a snapshot service may answer later
    line = mirror_line(input_origin(entry))
    hint = f"{action}, or write another place into site.yaml:  {mirrors_setting(line)}"
    return Finding(f"{describe_input(entry)} is not available; tried:{tried}", "", hint, (line,))
