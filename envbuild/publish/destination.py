"""Destination of a published image: a repository and tag of a registry, or a folder with an OCI layout."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from envbuild.core.distributions import PATHS
from envbuild.core.errors import SpecError
from envbuild.core.paths import expand_home
from envbuild.net.registry.reference import Reference, parse_reference
from envbuild.net.urls import redact_reference

LAYOUT = "oci:"
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")  # distribution spec, "Pulling manifests"
RESERVED = re.compile(r"sha256-[0-9a-f]{64}.*")  # fallback tags of referrers
HINT = "write REGISTRY/REPOSITORY[:TAG], as in registry.example/team/images:h100, or a folder: ./images, oci:DIR"


@dataclass(frozen=True, slots=True)
class Destination:
    """A place to publish to: `reference` with its tag, or a `folder` and a `tag` in its index.

    `index`: the tag of an index of several platforms that the image is added to (empty: none)
    """

    reference: Reference | None
    folder: Path | None
    tag: str
    index: str = ""

    def with_index(self, tag: str) -> Destination:
        """Return the destination with the tag of an index of several platforms (empty: none). Raises SpecError."""
        if tag and check_tag(tag) == self.tag:
            raise SpecError(
                f"--index {tag} is the tag of the image itself, and an index names images",
                hint=f"give the image a tag of its own: --to …:{tag}-amd64, or leave its tag out",
            )
        return replace(self, index=tag)

    @property
    def index_name(self) -> str:
        """The index with its place; empty if there is none."""
        return str(replace(self, tag=self.index)) if self.index else ""

    def name(self, image: str) -> str:
        """Return the name of a published `image` in statements about it, without a folder of this machine, and without
        the tag: an image under many tags has one signature of a key."""
        return self.reference.name if self.reference else image

    def __str__(self) -> str:
        return f"{self.reference.name}:{self.tag}" if self.reference else f"oci:{self.folder}:{self.tag}"


def parse_destination(text: str, tag: str) -> Destination:
    """Return the destination that a user wrote; `tag` is the one for a text without a tag.

    Raises SpecError for anything else, and for a tag that no registry takes.
    """
    if text.startswith((LAYOUT, *PATHS)):
        path, colon, own = text.removeprefix(LAYOUT).rpartition(":")
        folder, named = (path, own) if colon and "/" not in own else (text.removeprefix(LAYOUT), tag)
        if not folder:
            raise SpecError(f"'{text}' names no folder", hint=HINT)
        return Destination(None, expand_home(folder), check_tag(named))
    plain, digest, _ = text.partition("@sha256:")
    if "@" in plain:  # the text before it may be a password
        raise SpecError(
            f"…@{plain.rpartition('@')[2][:200]} names a user, and envbuild takes docker's own logins",
            hint="docker login REGISTRY; then write the destination without the user",
        )
    if digest:
        raise SpecError(f"'{text[:200]}' has a digest, which only the published image decides", hint=HINT)
    try:
        found = parse_reference(text.removeprefix("docker://"))
    except SpecError as error:
        raise SpecError(error.message, hint=HINT) from None
    has_tag = ":" in text.rpartition("/")[2]
    named = check_tag(found.tag if has_tag else tag)
    return Destination(replace(found, tag=named), None, named)


def check_tag(tag: str) -> str:
    """Return a tag. Raises SpecError if registries refuse it, or use it for something else."""
    if not TAG.fullmatch(tag) or RESERVED.fullmatch(tag):
        raise SpecError(
            f"'{redact_reference(tag)[:200]}' cannot be the tag of an image",
            hint="write at most 128 of A-Z a-z 0-9 _ . - and begin with a letter, a digit or _",
        )
    return tag


def default_tag(target: str, image: str, epoch: int) -> str:
    """Return the tag ``TARGET-IMAGE-DATE``, with the date of the newest input: the same lock has the same tag."""
    return f"{target}-{image}-{datetime.fromtimestamp(epoch, UTC):%Y%m%d}"
