"""References of images: ``HOST[:PORT]/PATH[:TAG][@sha256:…]`` (distribution's "reference" grammar)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address

from envbuild.core.distributions import LOCAL_FORMS, is_local_image
from envbuild.core.errors import SpecError
from envbuild.net.origin_kinds import LOCAL
from envbuild.net.urls import redact_reference

DOCKER = "docker.io"  # a name, not a host: see `envbuild/net/homes/docker-hub.yaml`
COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
GRAMMAR = re.compile(
    r"(?P<registry>[A-Za-z0-9.-]+(?::[0-9]+)?|\[[0-9a-fA-F:]+\](?::[0-9]+)?)"
    rf"/(?P<repository>{COMPONENT}(?:/{COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@sha256:(?P<digest>[0-9a-f]{64}))?"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed reference. `digest` (hex) takes precedence over `tag`; with neither the tag is ``latest``."""

    registry: str
    repository: str
    tag: str
    digest: str = ""

    @property
    def name(self) -> str:
        """Registry and repository."""
        return f"{self.registry}/{self.repository}"

    @property
    def origin(self) -> str:
        """The origin by which a site lists its mirrors: ``oci:nvcr.io/nvidia/pytorch``."""
        return f"oci:{self.name}"

    @property
    def wanted(self) -> str:
        """The name that is requested of a registry: the digest, else the tag."""
        return f"sha256:{self.digest}" if self.digest else self.tag


def parse_reference(text: str) -> Reference:
    """Return the parts of a reference that names its registry. Raises SpecError."""
    found = GRAMMAR.fullmatch(text)
    if not found or not _can_be_host(found["registry"]):
        raise SpecError(
            f"'{redact_reference(text)[:200]}' is not the reference of an image",
            hint="write HOST/PATH:TAG, as in nvcr.io/nvidia/pytorch:25.10-py3",
        )
    repository = found["repository"]
    if found["registry"] == DOCKER and "/" not in repository:
        repository = f"library/{repository}"  # where its official images are: docker.io/debian:13
    return Reference(found["registry"], repository, found["tag"] or "latest", found["digest"] or "")


def _can_be_host(registry: str) -> bool:
    """Return whether a text in brackets is an IPv6 address."""
    if not registry.startswith("["):
        return True
    try:
        IPv6Address(registry[1:].partition("]")[0])
    except ValueError:
        return False
    return True


def mirror_reference(base: str, digest: str) -> str:
    """Return the reference under which an offline mirror has a base image with the manifest `digest` (hex): `base`, as
    the spec names it, if that has a registry; else ``local/NAME@sha256:…``, after its file (``./app.tar``)."""
    if not is_local_image(base):
        return base
    path = next((base.removeprefix(form) for form in LOCAL_FORMS if base.startswith(form)), base)
    file = path.partition(":")[0].rstrip("/").rpartition("/")[2].lower()
    stem = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\.(tar|tgz|oci)\b.*", "", file)).strip("-")
    return f"{LOCAL}/{stem or 'image'}@sha256:{digest}"
