"""The squashfs file that was published with an image: its artifact, checked as far as digests reach."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from envbuild.core.errors import EnvbuildError, InputError, VerifyError
from envbuild.net.download import Transfer
from envbuild.oci import manifest as m
from envbuild.oci.document import MAX_DOCUMENT, InvalidDocumentError, Part
from envbuild.publish.artifact_types import DOCUMENT, EMPTY, EMPTY_TYPE, FAMILY, SQUASHFS, WHOLE
from envbuild.publish.binding import Binding, read_binding
from envbuild.publish.remote_blob import read_blob, read_document
from envbuild.publish.remote_image import ImageDocument, RemoteImage, entries_of
from envbuild.publish.squashfs_document import SquashfsDocument, decode_document

CANDIDATES = 8  # artifacts of one image that are read, until one has the file that the image names


@dataclass(frozen=True, slots=True)
class PublishedSquashfs:
    """A published squashfs file: digests (``sha256:…``) of its artifact and of the image that it belongs to (empty: it
    was published without the layers of an image), its document, and the layers of the artifact."""

    artifact: str
    image: str
    document: SquashfsDocument
    layers: tuple[m.BlobDescriptor, ...]

    @property
    def digest(self) -> str:
        """The digest (``sha256:…``) of the image; of the artifact where there is none."""
        return self.image or self.artifact

    @property
    def description(self) -> str:
        """The digest (hex) of the blob with the document."""
        return next(layer.digest for layer in self.layers if layer.kind == DOCUMENT)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the blobs of the artifact by digest (hex)."""
        return {layer.digest: layer.size for layer in self.layers}


def find_squashfs(
    image: RemoteImage, found: ImageDocument, *, bound: bool = False, transfer: Transfer | None = None
) -> PublishedSquashfs | None:
    """Return the squashfs file of an image, or of the artifact that is named; None if it was published without one, or
    if its manifest has none and the image was named by its digest, or only what the manifest names is wanted (`bound`:
    it is signed). `transfer`: into the store that caches its document (None: none does).

    Raises InputError for a newer format, and if a part is damaged or not available; VerifyError for an artifact of
    another image or with another file, ConflictError.
    """
    if str(found.value.get("artifactType", "")).startswith(FAMILY):
        named = read_artifact(image, found, transfer)
        if not named.image:
            return named
        owner = image.read(named.image)  # what it claims; the image's manifest names its file
        binding = read_binding(owner.value)
        checked = check_artifact(named, binding, image.name, owner.digest)
        return checked if binding.file else replace(checked, image="")
    binding = read_binding(found.value)
    if (image.pinned or bound) and not binding.file:
        return None
    failed: EnvbuildError | None = None
    for artifact in list_artifacts(image, found)[: CANDIDATES if binding.file else 1]:
        try:
            read = read_artifact(image, image.read(artifact), transfer)
            return check_artifact(read, binding, image.name, found.digest)
        except EnvbuildError as error:
            failed = failed or error
    if failed:
        raise failed
    return None


def check_listed(found: PublishedSquashfs | None, manifest: ImageDocument, name: str) -> None:
    """Raise VerifyError for a signed image without the squashfs file that its manifest names: its layers would become
    another one."""
    if found is None and (file := read_binding(manifest.value).file):
        raise VerifyError(
            f"the signed manifest of {name} names the squashfs file sha256:{file}, which is not listed",
            hint="publish the image again, or copy it with its artifacts (oras cp --recursive)",
        )


def check_artifact(found: PublishedSquashfs, binding: Binding, name: str, digest: str) -> PublishedSquashfs:
    """Return an artifact that belongs to the image `digest` and has what its manifest names. Raises VerifyError."""
    if found.image != digest:
        raise other_image_error(name, found.image, digest)
    if binding.file and not binding.fits(found.document, found.layers):
        raise VerifyError(
            f"the artifact that is listed for {name} has another squashfs file, spec or lock than the image names",
            hint="the list of artifacts was changed: publish the image again",
        )
    return found


def read_artifact(image: RemoteImage, artifact: ImageDocument, transfer: Transfer | None = None) -> PublishedSquashfs:
    """Return the squashfs file of an artifact. Raises as `find_squashfs`."""
    try:
        whole = Part(artifact.value)
        check_kind(whole.part("artifactType").text(), image.name)
        check_config(m.parse_descriptor(whole.part("config")))
        listed = whole.part("subject")
        subject = f"sha256:{m.parse_descriptor(listed).digest}" if listed.value is not None else ""
        layers = [m.parse_descriptor(item) for item in whole.part("layers").parts(needed=True)]
        documents = [layer for layer in layers if layer.kind == DOCUMENT]
        if len(documents) != 1:
            raise InvalidDocumentError(f"it has {len(documents)} documents instead of one")
    except InvalidDocumentError as error:
        raise m.corrupt_document_error(image.name, error, "artifact") from None
    if documents[0].size > MAX_DOCUMENT:
        raise InputError(
            f"the document of the squashfs file of {image.name} has more than {MAX_DOCUMENT >> 20} MiB",
            hint="publish the image again",
        )
    digest, size = documents[0].digest, documents[0].size
    content = read_document(image, transfer, digest, size) if transfer else read_blob(image, digest, size)
    document = decode_document(content, {layer.digest: layer.size for layer in layers}, image.name)
    if document.manifest != subject:
        raise other_image_error(image.name, document.manifest, subject)
    return PublishedSquashfs(artifact.digest, document.manifest, document, tuple(layers))


def list_artifacts(image: RemoteImage, found: ImageDocument) -> list[str]:
    """Return the artifacts with the packs of an image (``sha256:…``), the last one that is listed first.

    Raises InputError, also if there are only ones in a newer form."""
    listed = list(entries_of(image.referrers(found.digest, SQUASHFS)))
    own = [f"sha256:{part.digest}" for kind, part in listed if kind == SQUASHFS]
    for kind, _ in () if own else listed:
        if kind != WHOLE:
            check_kind(kind, image.name)
    return own[::-1]


def check_config(found: m.BlobDescriptor) -> None:
    """Raise InvalidDocumentError for an artifact with the configuration of an image: a container engine would start
    other content by the digest that a signature names."""
    if (found.kind, found.digest) != (EMPTY_TYPE, hashlib.sha256(EMPTY).hexdigest()):
        raise InvalidDocumentError("its config is not the empty one of an artifact")


def check_kind(kind: str, name: str) -> None:
    """Raise InputError for an artifact with a squashfs file in a newer form."""
    if kind.startswith(FAMILY) and kind != SQUASHFS:
        raise InputError(
            f"the squashfs file of {name} is published as {kind[:100]!a}, and this envbuild reads {SQUASHFS}",
            hint="install a newer envbuild, or convert its layers: envbuild export docker://NAME --to squashfs",
        )


def other_image_error(name: str, found: str, wanted: str) -> VerifyError:
    """Return the error for an artifact that was published for another image."""
    return VerifyError(
        f"the artifact that is listed for {name} belongs to another image: {found or 'none'} instead of "
        f"{wanted or 'none'}",
        hint="the list of artifacts was changed: publish the image again",
    )
