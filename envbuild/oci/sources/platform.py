"""Selection of an image by CPU architecture from an index (OCI image-index.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from envbuild.core.errors import ConflictError, SpecError
from envbuild.oci import manifest as m

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
GRAMMAR = re.compile(r"(?:linux/)?([a-z0-9_]+)(?:/(v[0-9]+))?")
NO_IMAGES = ("unknown/unknown", "None/None")  # attestations, which an index lists beside the images


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


def pick_manifest(listed: Iterable[Mapping[str, Any]], name: str, platform: Platform) -> m.BlobDescriptor:
    """Return the manifest for `platform` among the entries of an index; if the user named none, the only one.

    Raises ConflictError with the platforms in the index, InputError for a corrupt index.
    """
    found: list[tuple[str, m.BlobDescriptor]] = []
    try:
        for item in listed:
            value = item.get("platform") or {}
            have = f"{value.get('os')}/{value.get('architecture')}"
            if have in NO_IMAGES and value:
                continue
            variant = str(value.get("variant") or "")
            part = m.parse_descriptor(item)
            if not value or (value.get("os") == m.SYSTEM and platform.fits(str(value.get("architecture")), variant)):
                return part
            found.append((f"{have}/{variant}" if variant else have, part))
    except (m.InvalidDocumentError, KeyError, TypeError, AttributeError) as error:
        raise m.corrupt_manifest_error(name, error) from None
    linux = [part for have, part in found if have.startswith(f"{m.SYSTEM}/")]
    if len(linux) == 1 == len(found) and not platform.asked:
        return linux[0]
    raise wrong_platform_error(name, platform, [have for have, _ in found])


def wrong_platform_error(name: str, platform: Platform, found: Iterable[str]) -> ConflictError:
    """Return the error for an image that is made for other platforms: `found`."""
    offered = sorted(set(found))
    linux = [have for have in offered if have.startswith(f"{m.SYSTEM}/")]
    return ConflictError(
        f"{name} has no image for {platform}, because it is made for {', '.join(offered) or 'nothing'}",
        hint=f"--platform {linux[0]}" if linux else "choose another image",
    )
