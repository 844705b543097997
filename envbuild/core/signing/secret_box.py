"""The box that cosign locks a private key in: ``nacl/secretbox``, which is XSalsa20 with Poly1305.

Sources: D. J. Bernstein, "Cryptography in NaCl" (2009), sections 7 to 10, and "Extending the Salsa20 nonce" (2011).
`cryptography` has Poly1305 and no Salsa20; a key has three blocks of it, so that plain Python suffices.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator, Sequence

CONSTANTS = struct.unpack("<4I", b"expand 32-byte k")
MASK = 0xFFFFFFFF
KEY, NONCE, TAG, BLOCK = 32, 24, 16, 64  # bytes
QUARTERS = (  # columns, then rows; each word is made of the two that precede it
    (0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11),
    (0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14),
)  # fmt: skip


class WrongKeyError(ValueError):
    """A box that this key does not open, or that was changed."""


def seal(content: bytes, key: bytes, nonce: bytes) -> bytes:
    """Return the box of a content. key: 32 bytes; nonce: 24 bytes, of which no two boxes of a key have the same."""
    first, hidden = _stream(key, nonce, content)
    return _tag(first, hidden) + hidden


def unseal(box: bytes, key: bytes, nonce: bytes) -> bytes:
    """Return the content of a box. Raises WrongKeyError."""
    tag, hidden = box[:TAG], box[TAG:]
    first, content = _stream(key, nonce, hidden)
    if len(tag) != TAG or not hmac.compare_digest(_tag(first, hidden), tag):
        raise WrongKeyError("the box cannot be opened with this key")
    return content


def _tag(key: bytes, hidden: bytes) -> bytes:
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    return Poly1305.generate_tag(key, hidden)


def _stream(key: bytes, nonce: bytes, content: bytes) -> tuple[bytes, bytes]:
    """Return the key of Poly1305, and a content with the stream after it added."""
    if len(key) != KEY or len(nonce) != NONCE:
        raise WrongKeyError("a key of 32 bytes and a nonce of 24 bytes are needed")
    words = _rounds(_state(key, nonce[:16]))
    inner = struct.pack("<8I", *(words[place] for place in (0, 5, 10, 15, 6, 7, 8, 9)))
    stream = b"".join(_blocks(inner, nonce[16:], (KEY + len(content) + BLOCK - 1) // BLOCK))
    return stream[:KEY], bytes(one ^ two for one, two in zip(content, stream[KEY:], strict=False))


def _blocks(key: bytes, nonce: bytes, count: int) -> Iterator[bytes]:
    for number in range(count):
        begin = _state(key, nonce + struct.pack("<Q", number))
        mixed = (one + two & MASK for one, two in zip(begin, _rounds(begin), strict=True))
        yield struct.pack("<16I", *mixed)


def _state(key: bytes, middle: bytes) -> list[int]:
    """Return the 16 words that a block begins with: constants on the diagonal, the key around 16 bytes."""
    keys, inner = struct.unpack("<8I", key), struct.unpack("<4I", middle)
    return [
        CONSTANTS[0], *keys[:4],
        CONSTANTS[1], *inner,
        CONSTANTS[2], *keys[4:],
        CONSTANTS[3],
    ]  # fmt: skip


def _rounds(state: Sequence[int]) -> list[int]:
    words = list(state)
    for _ in range(10):
        for a, b, c, d in QUARTERS:
            words[b] ^= _rotate(words[a] + words[d], 7)
            words[c] ^= _rotate(words[b] + words[a], 9)
            words[d] ^= _rotate(words[c] + words[b], 13)
            words[a] ^= _rotate(words[d] + words[c], 18)
    return words


def _rotate(word: int, count: int) -> int:
    word &= MASK
    return word << count & MASK | word >> 32 - count
