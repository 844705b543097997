"""Manifests: the image of an architecture in an index, the configuration and the layers of an image.

Formats: OCI image spec 1.1, manifest.md, image-index.md, config.md, layer.md; distribution "Image Manifest V 2, Schema
2" and its list. Schema 1 (its layers have no digest of their own content and no configuration) is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from envbuild.core.errors import ConflictError, Finding, InputError
from envbuild.core.text import printable, printable_list
from envbuild.net.registry.media_types import DOCKER, DOCKER_INDEX, INDEX, OCI, SQUASHFS_FAMILY
from envbuild.oci.document import InvalidDocumentError, Part, check_names, parse_json

SYSTEM = "linux"
WORD = re.compile(r"[A-Za-z0-9._-]{0,100}")  # of a platform: in messages and hints it is a word of a command line
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
LAYER = re.compile(
    r"application/vnd\.(oci\.image\.layer\.(nondistributable\.)?v1\.tar(\+gzip|\+zstd)?"
    r"|docker\.image\.rootfs\.(foreign\.)?diff\.tar(\.gzip|\.zstd)?)"
)
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # sha256 of empty content
FOREIGN = re.compile(r"nondistributable|foreign")
OTHER_NAMES = frozenset({"x86_64", "x86-64", "aarch64", "armhf", "armel", "i386"})  # of architectures
OTHER_BASE = "choose a base image, or a target, of the other CPU architecture"
MAX_SIZE = (1 << 63) - 1  # bytes of a file
IMAGE_TYPES, INDEX_TYPES = (OCI.manifest, DOCKER.manifest), (INDEX, DOCKER_INDEX)
# The names that decide what an image is, by the object that has them.
PLATFORM, ROOTFS = ("architecture", "os", "variant"), ("type", "diff_ids")
DESCRIPTOR = ("mediaType", "digest", "size", "urls", "annotations", "platform", "artifactType")
CONFIGURATION = ("Env", "Cmd", "Entrypoint", "WorkingDir", "Labels", "Volumes", "User")
DOCUMENT = (*PLATFORM, "schemaVersion", "mediaType", "config", "layers", "manifests", "rootfs", "created", "subject")
# Docker's own limit is 127. A small layer takes a minute to unpack, each time that an image names it.
MOST_LAYERS, MOST_SAME = 500, 16
EMPTY_LAYERS = frozenset(hashlib.sha256(bytes(size)).hexdigest() for size in (0, 1024, 10_240))  # tars of no entry
SMALL = 1024  # bytes of a blob of such a layer, at most
INDEXES = 4  # that follow each other, at most: an index may list indexes


@dataclass(frozen=True, slots=True)
class BlobDescriptor:
    """Descriptor of a blob in a manifest: digest (hex), size in bytes and media type (`kind`)."""

    digest: str
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class ImageManifest:
    """Manifest of one image: its configuration and its layers, bottom first."""

    config: BlobDescriptor
    layers: tuple[BlobDescriptor, ...]


@dataclass(frozen=True, slots=True)
class BaseImageConfig:
    """Values of an image's configuration: `arch` (amd64, arm64), `system`, `env`, `created` (RFC 3339 or empty)."""

    arch: str
    system: str
    env: Mapping[str, str]
    created: str

    def fits(self, arch: str) -> bool:
        return (self.system, self.arch) == (SYSTEM, arch)


def parse_document(content: bytes, name: str, what: str = "manifest") -> dict[str, Any]:
    """Return the JSON object of a manifest, an index or a configuration. Raises InputError, also for schema 1.

    what: the document, in messages.
    """
    try:
        value: dict[str, Any] = parse_json(content).expect(dict)
        check_kind(value)
    except InvalidDocumentError as error:
        raise corrupt_document_error(name, error, what) from None
    if value.get("schemaVersion") == 1:
        raise InputError(
            f"{name} is an image of Docker's manifest schema 1, which describes neither its configuration nor "
            "the content of its layers",
            hint="push it again with a current program (docker pull, docker push), and use that tag",
        )
    return value


def check_kind(value: Mapping[str, Any]) -> None:
    """Raise InvalidDocumentError for a document that one client reads as an index, and another one as an image: its
    digest would name two (CVE-2021-41190; OCI image spec 1.1, manifest.md and image-index.md, "mediaType")."""
    check_letters(value)
    lists, kind = "manifests" in value, value.get("mediaType")
    if lists and ("config" in value or "layers" in value):
        raise InvalidDocumentError("it is both an index and the manifest of an image")
    if kind in (IMAGE_TYPES if lists else INDEX_TYPES):
        raise InvalidDocumentError(f"it is not what its media type states: {kind}")


def check_letters(value: Mapping[str, Any]) -> None:
    """Raise InvalidDocumentError for a name that this reader does not know and another one takes for a known one."""
    check_names(value, DOCUMENT)
    check_names(value.get("config"), (*DESCRIPTOR, *CONFIGURATION))
    check_names(value.get("rootfs"), ROOTFS)
    for key in ("layers", "manifests"):
        listed = value.get(key)
        for entry in listed if isinstance(listed, list) else ():
            check_names(entry, DESCRIPTOR)
            check_names(entry.get("platform") if isinstance(entry, dict) else None, PLATFORM)


def corrupt_document_error(name: str, error: InvalidDocumentError, what: str = "manifest") -> InputError:
    """Return the error for a corrupt manifest, index or configuration."""
    again = "push" if name.partition(":")[0] not in ("oci", "docker-archive", "docker-daemon") else "save"
    return InputError(f"the {what} of {name} is damaged: {error}", hint=f"{again} the image again")


def list_index(value: Mapping[str, Any], name: str, what: str = "index") -> list[Part]:
    """Return the entries of an index. Raises InputError."""
    try:
        return Part(value).part("manifests").parts(needed=True)
    except InvalidDocumentError as error:
        raise corrupt_document_error(name, error, what) from None


def nested_index_error(name: str) -> InputError:
    """Return the error for an index that leads to others, without an end that envbuild looks for."""
    return InputError(
        f"{name} is an index of indexes, more than {INDEXES} in each other",
        hint="name the image itself by its digest (NAME@sha256:…), or write it into a layout of its own",
    )


def other_architecture_error(name: str, arch: str, found: list[str]) -> ConflictError:
    """Return the error for an image of other CPU architectures: `found`."""
    made = printable_list(sorted(set(found))) or "nothing"
    return ConflictError(
        f"{name} has no image for {SYSTEM}/{arch}, because it is made for {made}",
        hint=OTHER_BASE,
    )


def read_manifest(
    value: Mapping[str, Any], name: str, has_blob: Callable[[BlobDescriptor], bool] | None = None
) -> ImageManifest:
    """Return the parts of an image's manifest. Raises InputError with every layer that cannot be read or unpacked.

    has_blob: whether the blob of a foreign layer is stored with the image. A foreign layer is then like any other.
    None: no foreign layer is accepted, because the image is an input of a lock.
    """
    check_image(value, name)
    whole = Part(value)
    try:
        config, listed = parse_descriptor(whole.part("config")), whole.part("layers").parts(needed=True)
        layers = tuple(parse_descriptor(item) for item in listed)
        addresses = [[url.expect(str) for url in item.part("urls").parts()] for item in listed]
    except InvalidDocumentError as error:
        raise corrupt_document_error(name, error) from None
    check_layers(
        len(layers), (layer.digest for layer in layers if layer.size > SMALL and layer.digest not in EMPTY_LAYERS), name
    )
    findings = []
    for number, (layer, urls) in enumerate(zip(layers, addresses, strict=True), 1):
        hint = "choose another image"
        if (urls or FOREIGN.search(layer.kind)) and not (has_blob and has_blob(layer)):
            why = f"is a foreign layer: only its publisher has sha256:{layer.digest}"
            if not has_blob:
                why = f"is a foreign layer: only its publisher may distribute sha256:{layer.digest}"
                hint = "choose a base image without such layers: a lock names inputs that mirrors and registries have"
            elif urls:
                file = f"blobs/sha256/{layer.digest}"
                hint = f"{printable(urls[0][:500])} has it; an OCI layout with that file as {file} can be exported"
        elif layer.kind.endswith("+encrypted"):
            why = "is encrypted, and envbuild has no keys"
        elif not LAYER.fullmatch(layer.kind):
            why = f"is of the kind {layer.kind[:100]!r}, which envbuild does not unpack"
        elif not layer.size and layer.digest != EMPTY_SHA256:
            why = f"has size 0 in the manifest, but its digest sha256:{layer.digest} is not that of empty content"
        else:
            continue
        findings.append(Finding(f"layer {number} of {name} {why}", hint=hint))
    if findings:
        raise InputError.of(findings)
    return ImageManifest(config, layers)


def check_layers(count: int, digests: Iterable[str], name: str) -> None:
    """Raise InputError for an image of too many layers, or one that names a layer too often. `digests`: of layers that
    are not empty."""
    same = max(Counter(digests).values(), default=0)
    if count > MOST_LAYERS:
        why = f"{name} has {count} layers, and at most {MOST_LAYERS} are read"
    elif same > MOST_SAME:
        why = f"{name} has one layer {same} times, and at most {MOST_SAME} times is read"
    else:
        return
    raise InputError(why, hint="buildah commit --squash joins the layers of an image")


def check_image(value: Mapping[str, Any], name: str) -> None:
    """Raise InputError for the squashfs file of an image that was published without its layers."""
    if str(value.get("artifactType", "")).startswith(SQUASHFS_FAMILY):
        raise InputError(
            f"{name} is a squashfs file, which was published without the layers of its image",
            hint=f"envbuild pull {name.removeprefix('docker://')}",
        )


def read_config(value: Mapping[str, Any], name: str) -> BaseImageConfig:
    """Return what an image's configuration specifies. Raises InputError."""
    whole = Part(value)
    try:
        lines = whole.part("config").optional("Env").parts()
        for line in lines:
            if "=" not in line.expect(str):
                raise line.error("without a value")
        env = dict(line.value.split("=", 1) for line in lines)
        arch, system = (whole.part(key).expect(str) for key in ("architecture", "os"))
        return BaseImageConfig(arch, system, env, whole.part("created").text())
    except InvalidDocumentError as error:
        raise corrupt_document_error(name, error, "configuration") from None


def parse_descriptor(item: Part) -> BlobDescriptor:
    """Return a descriptor. Raises InvalidDocumentError."""
    digest, size, kind = item.part("digest"), item.part("size"), item.part("mediaType")
    found = DIGEST.fullmatch(digest.expect(str))
    if not found:
        raise digest.error("not sha256: and 64 digits in lower case")
    if size.expect(int) < 0:
        raise size.error("less than nothing")
    if size.value > MAX_SIZE:
        raise size.error("more than a file can have")
    return BlobDescriptor(found[1], size.value, kind.expect(str))


def parse_platform(item: Part) -> tuple[str, str]:
    """Return the platform of an entry of an index (linux/amd64; empty if it has none) and its variant.

    Raises InvalidDocumentError.
    """
    platform = item.part("platform")
    system, arch, variant = (platform.optional(key).text() for key in ("os", "architecture", "variant"))
    if odd := next((word for word in (system, arch, variant) if not WORD.fullmatch(word)), ""):
        raise InvalidDocumentError(f"its platform has the word {odd[:100]!a}, which is not a plain name")
    if (system or arch) and not is_canonical(system, arch, variant):
        named = "/".join((system, arch, variant)).strip("/")
        raise InvalidDocumentError(
            f"its platform {named!a} is not written as in the OCI image spec, and programs differ"
        )
    return (f"{system}/{arch}" if platform.value else ""), variant


def is_canonical(system: str, arch: str, variant: str) -> bool:
    """Return whether a platform is written as Go names it (OCI image-index.md). containerd and Docker take other
    spellings for it (platforms.Normalize), skopeo does not."""
    numbers = arch in ("arm", "arm64") and variant.isdigit()
    return bool(system and arch) and f"{system}{arch}".islower() and arch not in OTHER_NAMES and not numbers


def is_index(value: Mapping[str, Any]) -> bool:
    """Return whether a document lists images instead of describing one."""
    return "manifests" in value and "config" not in value
