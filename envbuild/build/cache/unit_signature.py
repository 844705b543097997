"""Signatures of units in a cache: the document of a unit binds its key to digests, and a signature binds the document
to a key of the site."""

from __future__ import annotations

import hashlib

from envbuild.build.cache.open_cache import OpenCache
from envbuild.build.cache.unit_document import RefusedUnitError, UnitDocument
from envbuild.core.json_text import canonical_json, json_value
from envbuild.core.signing.envelope import parse_envelope, sign_payload
from envbuild.core.signing.key_file import Signer
from envbuild.core.signing.public_keys import TrustedKey
from envbuild.core.signing.statement import PAYLOAD, Subject, encode_statement, parse_statement
from envbuild.net.failures import NotFoundError
from envbuild.oci.manifest import BlobDescriptor

PREDICATE = "urn:envbuild:unit:v1"
MOST = 4  # signatures of a unit that are read
LARGEST = 1 << 16  # bytes of one


def sign_unit(document: UnitDocument, signer: Signer) -> bytes:
    """Return the envelope with the signed statement about the document of a unit."""
    subject = Subject(document.unit, hashlib.sha256(document.encode()).hexdigest())
    payload = encode_statement([subject], PREDICATE, {"key": document.key})
    return canonical_json(sign_payload(payload, signer))


def find_signer(cache: OpenCache, digest: str, signatures: list[BlobDescriptor]) -> str:
    """Return the name, in records of units, of the cache and the key that signed the document `digest` (hex); that of
    the cache alone if its units need no signature.

    Raises RefusedUnitError if no key of the site did; SignatureError for a key that cannot be used; UnreachableError.
    """
    keys = cache.trusted()
    if not keys:
        return cache.name
    reasons = []
    for blob in signatures[:MOST]:
        try:
            if blob.size > LARGEST:
                raise ValueError("it is too large")
            key, reason = judge(cache.read(blob.digest, blob.size), digest, keys)
        except ValueError as error:
            key, reason = None, f"its signature is malformed: {error}"
        except NotFoundError:
            key, reason = None, "its signature is missing"
        if key:
            return cache.setting.key_name(key.digest)  # its file may have another one by now
        reasons.append(reason)
    raise RefusedUnitError("; ".join(dict.fromkeys(reasons)) or "it is not signed, and the site requires a signature")


def judge(content: bytes, digest: str, keys: tuple[TrustedKey, ...]) -> tuple[TrustedKey | None, str]:
    """Return the key that signed the document `digest` (hex) in an envelope; None and the reason if none did. Raises
    ValueError for anything but an envelope with a statement."""
    envelope = parse_envelope(json_value(content))
    key = envelope.signed_by(keys)
    if key is None:
        return None, "no key of the site made its signature, or it was changed"
    if envelope.kind != PAYLOAD:
        return None, "its signature is of an unknown type"
    statement = parse_statement(envelope.payload)
    if statement.kind != PREDICATE:
        return None, "its signature has an unknown predicate"
    if digest not in statement.subjects:
        return None, "its signature belongs to another unit"
    return key, ""
