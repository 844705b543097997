"""Private keys in cosign's format: ``ENCRYPTED SIGSTORE PRIVATE KEY``, a PKCS8 key in a box that a passphrase opens.

Sources: sigstore/cosign, pkg/cosign/keys.go (the forms of PEM); secure-systems-lab/go-securesystemslib,
encrypted/encrypted.go (the JSON in it: scrypt, then nacl/secretbox).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import re
import stat
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.core.errors import SignatureError
from envbuild.core.file_status import file_status
from envbuild.core.json_text import record_value
from envbuild.core.ownership import own_users, user_name
from envbuild.core.shell import shell_word
from envbuild.core.signing.library import require_library
from envbuild.core.signing.public_keys import key_hint, read_key_file
from envbuild.core.signing.secret_box import NONCE, WrongKeyError, seal, unseal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

KINDS = ("ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY")  # the second one is of cosign 1
# A key anywhere in a file: with a mark of the byte order, indented, in one line, in a string with \\n for line ends.
PRIVATE = re.compile(rb"-----BEGIN (%b)-----[A-Za-z0-9+/=\s\\\"']{64,}-----END \1-----" % "|".join(KINDS).encode())
COST, BLOCKS, PARALLEL = 1 << 16, 8, 1  # of scrypt, as cosign writes them: half a second, 64 MiB
MOST_MEMORY = 256 << 20  # bytes that the scrypt of a file may take
HINT = "name the file that envbuild key new or cosign generate-key-pair wrote; others: cosign import-key-pair"


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key that is open, and the `hint` that names its public half in signatures."""

    hint: str
    key: EllipticCurvePrivateKey

    def sign(self, content: bytes) -> bytes:
        """Return a signature (ASN.1 DER). The same content has the same signature (RFC 6979)."""
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.hashes import SHA256

        return self.key.sign(content, ECDSA(SHA256(), deterministic_signing=True))


def write_key_pair(path: Path, passphrase: str) -> Path:
    """Make a key of ECDSA P-256; write it to `path` (mode 0600), and its public half beside it. Return the path of
    that. Raises SignatureError if one of the files exists or cannot be written."""
    require_library()
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    if not path.name:
        raise SignatureError(f"{path} is a folder, not the name of a key", hint="envbuild key new FILE.key")
    key, public = generate_private_key(SECP256R1()), path.with_suffix(".pub")
    if public == path:
        hint = f"envbuild key new {shell_word(path.with_suffix('.key'))}"
        raise SignatureError(f"{path} is the name of the public half", hint=hint)
    content = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    files = {
        path: (lock_key(content, passphrase), 0o600),
        public: (key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), 0o644),
    }
    for file in files:
        if os.path.lexists(file):
            raise SignatureError(f"{file} exists, and a key is never replaced", hint="name another file")
    with contextlib.ExitStack() as made:
        for file, (text, mode) in files.items():
            try:
                fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
                made.callback(file.unlink, missing_ok=True)  # unless both were written: it would never be replaced
                with os.fdopen(fd, "wb") as out:
                    os.fchmod(fd, mode)
                    out.write(text)
            except OSError as error:
                raise SignatureError(f"{file} cannot be written: {error.strerror}", hint="name another file") from None
        made.pop_all()
    return public


def read_box(path: Path) -> dict[str, Any]:
    """Return the box with a private key; its passphrase is not needed. Raises SignatureError as `read_signer`."""
    require_library()
    text = read_key_file(path, "the private key")
    check_private(path)
    try:
        return parse_box(text)
    except (ValueError, TypeError, LookupError):
        raise SignatureError(f"{path} is not a private key of cosign", hint=HINT) from None


def read_signer(path: Path, passphrase: Callable[[], str]) -> Signer:
    """Return the private key in a file; `passphrase` is called once. Raises SignatureError if others can read the file,
    if it has no such key, and for a wrong passphrase."""
    box = read_box(path)
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    try:
        key = load_der_private_key(unlock_key(box, passphrase()), None)
    except WrongKeyError:
        raise SignatureError(
            f"the passphrase does not open the key {path}", hint="export COSIGN_PASSWORD, or type it again"
        ) from None
    except ValueError:
        raise SignatureError(f"{path} is not a private key of cosign", hint=HINT) from None
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise SignatureError(f"the key {path} is not of ECDSA P-256", hint="envbuild key new FILE")
    return Signer(key_hint(key.public_key()), key)


def check_private(path: Path) -> None:
    """Raise SignatureError if other users can read or replace a private key, as ssh does for its keys."""
    found = file_status(path)
    if found.owner not in own_users():
        raise SignatureError(f"the private key {path} belongs to {user_name(found.owner)}", hint="use a key of yours")
    mode = stat.S_IMODE(found.stat.st_mode)
    if mode & 0o077:
        raise SignatureError(
            f"the private key {path} is open to other users (mode {mode:04o})",
            hint=f"chmod 600 {shell_word(path)}; if others could read it, make a new one: envbuild key new FILE",
        )


def lock_key(content: bytes, passphrase: str) -> bytes:
    """Return a PKCS8 key (DER) as a text in PEM that `passphrase` opens."""
    salt, nonce = os.urandom(32), os.urandom(NONCE)
    params = {"N": COST, "r": BLOCKS, "p": PARALLEL}
    box = seal(content, stretch(passphrase, salt, params), nonce)
    value = {
        "kdf": {"name": "scrypt", "params": params, "salt": encode(salt)},
        "cipher": {"name": "nacl/secretbox", "nonce": encode(nonce)},
        "ciphertext": encode(box),
    }
    lines = textwrap.wrap(encode(json.dumps(value, separators=(",", ":")).encode()), 64)
    return "\n".join([f"-----BEGIN {KINDS[0]}-----", *lines, f"-----END {KINDS[0]}-----", ""]).encode()


def parse_box(text: bytes) -> dict[str, Any]:
    """Return the JSON in a key in PEM. Raises ValueError, LookupError, TypeError for anything else."""
    for kind in KINDS:
        begin, end = f"-----BEGIN {kind}-----".encode(), f"-----END {kind}-----".encode()
        if begin in text and end in text:
            value = record_value(base64.b64decode(text.partition(begin)[2].partition(end)[0]))
            params = value["kdf"]["params"]
            memory = 128 * int(params["N"]) * int(params["r"])
            if (value["kdf"]["name"], value["cipher"]["name"]) != ("scrypt", "nacl/secretbox"):
                raise ValueError("an unknown cipher")
            if not 0 < memory <= MOST_MEMORY or not 0 < int(params["p"]) <= 4:
                raise ValueError("parameters of scrypt out of bounds")
            return dict(value)
    raise ValueError("not PEM of a private key")


def has_private_key(content: bytes) -> bool:
    """Return whether a file contains a private key: one that `parse_box` takes, or a text of this form."""
    if b"PRIVATE KEY-----" not in content:
        return False
    try:
        return bool(PRIVATE.search(content) or parse_box(content))
    except (ValueError, LookupError, TypeError):
        return False


def unlock_key(box: dict[str, Any], passphrase: str) -> bytes:
    """Return the PKCS8 key (DER) in a box. Raises WrongKeyError for a wrong passphrase, ValueError."""
    try:
        salt = base64.b64decode(box["kdf"]["salt"], validate=True)
        nonce = base64.b64decode(box["cipher"]["nonce"], validate=True)
        hidden = base64.b64decode(box["ciphertext"], validate=True)
        return unseal(hidden, stretch(passphrase, salt, box["kdf"]["params"]), nonce)
    except (binascii.Error, TypeError, LookupError) as error:
        raise ValueError(str(error)) from None


def stretch(passphrase: str, salt: bytes, params: dict[str, int]) -> bytes:
    """Return the key of a box for a passphrase, whose bytes are those of the variable or the terminal, as for cosign.
    Raises ValueError for parameters that scrypt does not take."""
    count, blocks, parallel = (int(params[name]) for name in ("N", "r", "p"))
    limit = MOST_MEMORY + (1 << 20)
    return hashlib.scrypt(os.fsencode(passphrase), salt=salt, n=count, r=blocks, p=parallel, dklen=32, maxmem=limit)


def encode(content: bytes) -> str:
    """Return base64."""
    return base64.b64encode(content).decode()
