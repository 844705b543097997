"""Public keys that a site trusts: files in PEM (SubjectPublicKeyInfo, RFC 5480) with a key of ECDSA P-256.

That is what ``envbuild key new`` and ``cosign generate-key-pair`` write.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.errors import Finding, SignatureError
from envbuild.core.ownership import find_any_intrusions
from envbuild.core.regular_file import NotRegularError, TooLargeError, read_bounded
from envbuild.core.shell import shell_word
from envbuild.core.signing.library import require_library

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

MAX_KEY = 1 << 16  # bytes of a file with a key; real ones have some hundred


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key: the name of its file, and its `hint` in signatures: base64 of the sha256 of its DER form. `digest`:
    the sha256 (hex) of what the file had, without white space around it."""

    name: str
    hint: str
    key: EllipticCurvePublicKey
    digest: str = ""

    def verify(self, signature: bytes, content: bytes) -> bool:
        """Return whether the private half of this key signed a content."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            self.key.verify(signature, content, ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


def read_public_keys(paths: Iterable[Path]) -> tuple[TrustedKey, ...]:
    """Return the keys in files. Raises SignatureError with every file that cannot be used."""
    require_library()
    found: list[TrustedKey] = []
    findings: list[Finding] = []
    for path in paths:
        try:
            found.append(read_public_key(path))
        except SignatureError as error:
            findings += error.findings
    if findings:
        raise SignatureError.of(findings)
    return tuple(found)


def read_public_key(path: Path) -> TrustedKey:
    """Return the key in a file. Raises SignatureError if others can change it, or if it has no such key."""
    return parse_public_key(read_trusted(path), str(path))


def read_trusted(path: Path) -> bytes:
    """Return the content of a file with a public key. Raises SignatureError if others can change the file, its folder,
    or a folder or link on the way to it."""
    if intruder := next(find_any_intrusions(path), None):
        hint = f"chmod go-w {shell_word(intruder.path)}" if intruder.own else "copy it into a folder of your own"
        whose = "" if intruder.path == path else f" is not trusted: {intruder.path}"
        raise SignatureError(f"the public key {path}{whose} {intruder.reason}: others can replace it", hint=hint)
    return read_key_file(path, "the public key")


def parse_public_key(content: bytes, name: str) -> TrustedKey:
    """Return the key in a text in PEM. Raises SignatureError for anything but ECDSA P-256."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    hint = "name a file NAME.pub that envbuild key new or cosign generate-key-pair wrote"
    if content.count(b"-----BEGIN ") > 1:  # the library takes the first one
        raise SignatureError(f"{name} has several keys in PEM", hint="write each key into a file of its own")
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        what = "a private key" if b"PRIVATE KEY-----" in content else "not a public key in PEM"
        raise SignatureError(f"{name} is {what}", hint=hint) from None
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        raise SignatureError(f"the public key {name} is not of ECDSA P-256", hint=hint)
    return TrustedKey(name, key_hint(key), key, hashlib.sha256(content.strip()).hexdigest())


def key_hint(key: EllipticCurvePublicKey) -> str:
    """Return the name of a key in signatures (sigstore/cosign, specs/BUNDLE_SPEC.md)."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    content = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


def read_key_file(path: Path, what: str) -> bytes:
    """Return the bytes of a file with a key; what: the beginning of a message. Raises SignatureError."""
    try:
        return read_bounded(path, MAX_KEY)
    except NotRegularError:
        why, hint = "is not a regular file", "name the file that envbuild key new wrote"
    except TooLargeError:
        why, hint = f"has more than {MAX_KEY >> 10} KiB, and is not a key", "name the file that envbuild key new wrote"
    except OSError as error:
        why, hint = f"cannot be read: {error.strerror}", f"envbuild key new {shell_word(path.with_suffix('.key'))}"
    raise SignatureError(f"{what} {path} {why}", hint=hint)
