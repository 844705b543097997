"""The older form of cosign's signatures, which cosign 2, podman and skopeo write and read: a manifest with the tag
``sha256-<hex>.sig``, in which each layer is a payload in the form of "simple signing" with its signature beside it.

Sources: sigstore/cosign, specs/SIGNATURE_SPEC.md; containers/image, docs/containers-signature.5.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from envbuild.core.errors import EnvbuildError
from envbuild.core.json_text import json_value
from envbuild.core.signing.envelope import decode
from envbuild.core.signing.public_keys import MAX_KEY, TrustedKey
from envbuild.oci import manifest as m
from envbuild.oci.document import InvalidDocumentError, Part
from envbuild.publish.remote_blob import read_blob
from envbuild.publish.remote_image import RemoteImage

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"  # annotation of a layer: base64 of the signature
KIND = "cosign container image signature"
MOST = 16  # signatures of one image that are read


def read_simple_signatures(
    image: RemoteImage, digest: str, keys: Sequence[TrustedKey]
) -> Iterator[tuple[TrustedKey | None, str]]:
    """Yield (key, "") for each signature of the image `digest` (``sha256:…``) that one of `keys` made, and (None,
    reason) for the others."""
    found = image.tagged(f"{digest.replace(':', '-')}.sig")
    try:
        listed = Part(found.value).part("layers").parts(needed=True) if found else []
    except InvalidDocumentError:
        return
    for part in listed[:MOST]:
        try:
            blob, text = m.parse_descriptor(part), part.part("annotations").optional(SIGNATURE).text()
            if blob.kind != PAYLOAD or blob.size > MAX_KEY:
                continue
            content, signature = read_blob(image, blob.digest, blob.size), decode(text)
        except (EnvbuildError, ValueError):
            yield None, "a signature of the older form is malformed"
            continue
        key = next((key for key in keys if key.verify(signature, content)), None)
        if key is None:
            yield None, "a signature of the older form is of a key that the site does not list, or was changed"
        elif named_digest(content) != digest:
            yield None, "a signature of the older form belongs to another image"
        else:
            yield key, ""


def named_digest(content: bytes) -> str:
    """Return the digest (``sha256:…``) that a payload is about; empty for a payload of something else."""
    try:
        critical: Any = json_value(content)["critical"]
        return str(critical["image"]["docker-manifest-digest"]) if critical["type"] == KIND else ""
    except (ValueError, LookupError, TypeError):
        return ""
