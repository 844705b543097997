"""Selection of an image by CPU architecture from an index (OCI image-index.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from envbuild.core.errors import ConflictError, InputError, SpecError
from envbuild.core.shell import shell_word
from envbuild.core.text import printable_list
from envbuild.net.registry.media_types import NO_IMAGE
from envbuild.oci import manifest as m
from envbuild.oci.document import InvalidDocumentError, Part

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
PLAIN = {"amd64": ("", "v1"), "arm64": ("", "v8")}  # variants that all processors of an architecture have
IN_ZSTD = "io.github.containers.compression.zstd"  # of an entry (podman manifest push --add-compression)
MOST_TWINS = 4  # manifests of one image in several compressions
LAST = 2  # of an entry without a platform
GRAMMAR = re.compile(r"(?:linux/)?([a-z0-9_]+)(?:/(v[0-9]+))?")


@dataclass(frozen=True, slots=True)
class Platform:
    """CPU architecture as OCI names it. `asked`: the user named it, so that no other is accepted."""

    arch: str
    variant: str = ""
    asked: bool = False

    def __str__(self) -> str:
        return "/".join(part for part in (m.SYSTEM, self.arch, self.variant) if part)

    @classmethod
    def of(cls, text: str) -> Platform:
        """Parse ``linux/arm64``, ``arm64``, ``arm/v7``; empty: this machine's. Raises SpecError."""
        if not text:
            machine = os.uname().machine
            return cls(MACHINES.get(machine, machine))
        found = GRAMMAR.fullmatch(text)
        if not found:
            raise SpecError(f"--platform {text!r} is not a Linux platform", hint="write linux/amd64 or linux/arm64")
        return cls(MACHINES.get(found[1], found[1]), found[2] or "", True)

    def fits(self, arch: str, variant: str) -> bool:
        """Return whether an image of this architecture and variant is one for the platform."""
        return arch == self.arch and self.variant in ("", variant)

    def rank(self, arch: str, variant: str) -> int | None:
        """Return the place of an image of an index in the order of choice; None for one that is not chosen unless the
        user names it: for x86-64-v3, for example, which this machine may not have."""
        if not self.fits(arch, variant):
            return None
        if self.variant or variant in PLAIN.get(arch, ("",)):
            return 0
        return None if arch in PLAIN else 1


def pick_manifest(
    listed: Iterable[Part], name: str, platform: Platform, read: Callable[[str], Mapping[str, Any]]
) -> m.BlobDescriptor:
    """Return the manifest for `platform` among the entries of an index; if the user named none, the only one. One
    without a platform is taken if no other fits. podman and skopeo choose in the same way. `read` returns the manifest
    of a digest (``sha256:…``): of an image that is listed twice, the second time in zstd, both are compared.

    Raises ConflictError with the platforms in the index, InputError for a corrupt index and for two images.
    """
    found: list[tuple[str, m.BlobDescriptor]] = []
    fitting: list[tuple[int, m.BlobDescriptor]] = []
    before: list[tuple[int, str]] = []
    packed: set[str] = set()  # digests of the same images in zstd, which podman adds
    try:
        for item in listed:
            have, variant = m.parse_platform(item)
            if have in (NO_IMAGE, "/"):
                continue
            part = m.parse_descriptor(item)
            system, _, arch = have.partition("/")
            rank = LAST if not have else platform.rank(arch, variant) if system == m.SYSTEM else None
            if rank is None:
                found.append((f"{have}/{variant}" if variant else have, part))
            elif not (is_special(item) and (rank, variant) in before):  # all others take the first one
                before.append((rank, variant))
                fitting.append((rank, part))
                if item.part("annotations").optional(IN_ZSTD).text() == "true":
                    packed.add(part.digest)
    except InvalidDocumentError as error:
        raise m.corrupt_document_error(name, error, "index") from None
    first = {part.digest for rank, part in fitting if rank == 0}
    twice = len(first) > 1 and len(first - packed) <= 1  # the same image, if their configurations are one
    several = len(first - packed) > 1 or len(first) > MOST_TWINS  # each is read, from a registry one after the other
    if several or (twice and len({_configuration(read, one, name) for one in first}) > 1):
        raise InputError(
            f"{name} has two images for {platform}, of which programs take one or the other",
            hint="name the image itself by its digest (NAME@sha256:…)",
        )
    if fitting:
        return min(fitting, key=lambda item: item[0])[1]
    linux = [part for have, part in found if have.startswith(f"{m.SYSTEM}/")]
    if len(linux) == 1 == len(found) and not platform.asked:
        return linux[0]
    raise wrong_platform_error(name, platform, [have for have, _ in found])


def is_special(item: Part) -> bool:
    """Return whether an entry of an index is one for programs that know its kind: an artifact that describes the image
    (SOCI index v2: artifactType, with the platform of the image), or an image for platforms with special features
    (nydus: os.features; OCI image-index.md). New releases of skopeo prefer what is marked as zstd, of any kind."""
    packed = item.part("annotations").optional(IN_ZSTD).text() == "true"
    return not packed and bool(
        item.optional("artifactType").text() or item.part("platform").optional("os.features").value
    )


def _configuration(read: Callable[[str], Mapping[str, Any]], digest: str, name: str) -> str:
    """Return the digest of the configuration of an image of an index: it names the content of each layer."""
    try:
        return m.parse_descriptor(Part(read(f"sha256:{digest}")).part("config")).digest
    except InvalidDocumentError as error:
        raise m.corrupt_document_error(name, error, "manifest") from None


def wrong_platform_error(name: str, platform: Platform, found: Iterable[str]) -> ConflictError:
    """Return the error for an image that is made for other platforms: `found`."""
    offered = sorted(set(found))
    linux = [have for have in offered if have.startswith(f"{m.SYSTEM}/")]
    return ConflictError(
        f"{name} has no image for {platform}, because it is made for {printable_list(offered) or 'nothing'}",
        hint=f"--platform {shell_word(linux[0])}" if linux else "choose another image",
    )
