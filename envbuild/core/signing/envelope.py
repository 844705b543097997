"""Envelopes of DSSE (secure-systems-lab/dsse, protocol.md and envelope.md), and the bundle of Sigstore around one.

A bundle has one envelope with exactly one signature, and the hint of its key (sigstore/protobuf-specs,
sigstore_bundle.proto; sigstore/cosign, specs/BUNDLE_SPEC.md).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from envbuild.core.json_text import canonical_json, json_value
from envbuild.core.signing.key_file import Signer
from envbuild.core.signing.public_keys import TrustedKey
from envbuild.core.signing.statement import PAYLOAD

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
BUNDLES = "application/vnd.dev.sigstore.bundle"  # and older and newer ones


@dataclass(frozen=True, slots=True)
class Envelope:
    """An envelope with one signature: `payload` of the type `kind`; `hint`: the key, as the envelope names it, which
    proves nothing."""

    payload: bytes
    kind: str
    signature: bytes
    hint: str

    def signed_by(self, keys: Sequence[TrustedKey]) -> TrustedKey | None:
        """Return the key that made the signature; None if none of them did."""
        content = pre_authentication_encoding(self.kind, self.payload)
        return next((key for key in keys if key.verify(self.signature, content)), None)


def pre_authentication_encoding(kind: str, payload: bytes) -> bytes:
    """Return the bytes that are signed (PAE of DSSE): both lengths are part of them."""
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)


def sign_payload(payload: bytes, signer: Signer, kind: str = PAYLOAD) -> dict[str, Any]:
    """Return the envelope of a payload, as a value of JSON."""
    signature = signer.sign(pre_authentication_encoding(kind, payload))
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": kind,
        "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": signer.hint}],
    }


def parse_envelope(value: Any) -> Envelope:
    """Return an envelope of a stranger. Raises ValueError, also if it has not exactly one signature."""
    if not isinstance(value, dict):
        raise ValueError("not an envelope")
    signatures, kind = value.get("signatures"), value.get("payloadType")
    if not isinstance(signatures, list) or len(signatures) != 1 or not isinstance(signatures[0], dict):
        raise ValueError("an envelope without exactly one signature")
    if not isinstance(kind, str) or not kind.isascii():  # as every media type (RFC 6838)
        raise ValueError("an envelope without a type")
    hint = signatures[0].get("keyid")
    return Envelope(
        decode(value.get("payload")), kind, decode(signatures[0].get("sig")), hint if isinstance(hint, str) else ""
    )


def encode_bundle(payload: bytes, signer: Signer) -> bytes:
    """Return a bundle with a signed payload."""
    value = {
        "mediaType": BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": signer.hint}},
        "dsseEnvelope": sign_payload(payload, signer),
    }
    return canonical_json(value)


def parse_bundle(content: bytes) -> Envelope:
    """Return the envelope in a bundle of a stranger. Raises ValueError."""
    value = json_value(content)
    if not isinstance(value, dict) or not str(value.get("mediaType", "")).startswith(BUNDLES):
        raise ValueError("not a bundle of Sigstore")
    if "dsseEnvelope" not in value:
        raise ValueError("a bundle without an envelope")
    return parse_envelope(value["dsseEnvelope"])


def decode(text: Any) -> bytes:
    """Return the bytes of base64, standard or URL-safe: DSSE has both. Raises ValueError."""
    if not isinstance(text, str):
        raise ValueError("a value that is not base64")
    try:
        return base64.b64decode(text.translate({ord("-"): "+", ord("_"): "/"}), validate=True)
    except binascii.Error:
        raise ValueError("a value that is not base64") from None
