"""Take in a layer of somebody's image: from the first byte of its blob into sinks, in one pass and without a file.

The blob is hashed as it comes, unpacked, hashed again, read as a tar and pushed into the sinks; only when everything is
what the image says are the sinks closed. Formats: OCI image spec, layer.md (media types and changesets), config.md
(``diff_ids``), descriptor.md (digests).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from envbuild.oci.decompress import sound, unpacking
from envbuild.oci.member import Member, Sink
from envbuild.oci.pieces import Readable
from envbuild.oci.source import SourceLayer
from envbuild.oci.tarread import LayerError, read_tar

LIMIT = 1 << 42  # bytes of an unpacked layer: more than any image has, less than hours of zeros
RATIO, SUSPECT = 200, 1 << 30  # a blob that grows more than 200 times, to more than 1 GiB, is no honest layer
ALGORITHMS = ("sha256", "sha384", "sha512")


@dataclass(frozen=True, slots=True)
class Taken:
    """A layer that was taken in: the bytes of its tar, and its members."""

    bytes: int
    members: int


def take_layer(layer: SourceLayer, sinks: Sequence[Sink], *, limit: int = LIMIT, ratio: int = RATIO) -> Taken:
    """Read `layer` into `sinks` and close them.

    `limit`: the most bytes that its tar may have; `ratio`: how many times the size of its blob it may be when it is
    larger than 1 GiB (0: any). Raises InputError for a blob that is damaged, is not the one that the image names, or
    is not a sound tar, what the sinks refuse, and what reading from its place raises. The sinks are then not closed:
    whoever made them discards what they hold.
    """
    with sound(layer.name), layer.open() as stream:
        blob = _Blob(stream, layer)
        fan = _Fan(sinks)
        with unpacking(blob) as content:
            tar = _Tar(content, blob, layer, limit, ratio)
            size = read_tar(tar, fan)
        blob.check()
        tar.check()
    fan.close()
    return Taken(size, fan.members)


class _Blob:
    """The blob as it comes. `size`: bytes read of it; `known`: how many there are, 0 when nobody said."""

    def __init__(self, stream: Readable, layer: SourceLayer) -> None:
        self.stream, self.layer, self.size, self.known = stream, layer, 0, layer.size
        # A blob that is not compressed has one digest: the tar's, which is taken anyway.
        self.hash = algorithm(layer.digest) if layer.digest and layer.digest != layer.diff_id else None

    def read(self, size: int) -> bytes:
        chunk = self.stream.read(size)
        self.size += len(chunk)
        if self.known and self.size > self.known:
            raise LayerError(f"it is larger than the {self.known} bytes that its image says it has")
        if self.hash is not None:
            self.hash.update(chunk)
        return chunk

    def check(self) -> None:
        """Raise LayerError when the blob, read to its end, is another one than the image names."""
        if self.known and self.size != self.known:
            raise LayerError(f"it has {self.size} bytes, and its image says {self.known}")
        if self.hash is not None:
            compare("its blob", self.hash, self.layer.digest)


class _Tar:
    """The unpacked blob."""

    def __init__(self, content: Readable, blob: _Blob, layer: SourceLayer, limit: int, ratio: int) -> None:
        self.content, self.blob, self.layer, self.limit, self.ratio = content, blob, layer, limit, ratio
        self.hash = algorithm(layer.diff_id)
        self.size = 0

    def read(self, size: int) -> bytes:
        piece = self.content.read(size)
        self.size += len(piece)
        if self.size > self.limit:
            raise LayerError(f"it unpacks to more than {self.limit} bytes, which is the limit")
        packed = self.blob.known or self.blob.size
        if self.size > SUSPECT and self.ratio and self.size > self.ratio * packed:
            raise LayerError(f"its {packed} bytes unpack to more than {self.ratio} times as many: it is a bomb")
        self.hash.update(piece)
        return piece

    def check(self) -> None:
        """Raise LayerError when the tar, read to its end, is another one than the image's configuration names."""
        compare("its tar", self.hash, self.layer.diff_id)


class _Fan:
    """A sink that gives everything to several, and counts members."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks, self.members = sinks, 0
        if len(sinks) == 1:
            self.data, self.zeros, self.end = sinks[0].data, sinks[0].zeros, sinks[0].end  # type: ignore[method-assign]

    def begin(self, member: Member) -> None:
        self.members += 1
        for sink in self.sinks:
            sink.begin(member)

    def data(self, chunk: bytes) -> None:
        for sink in self.sinks:
            sink.data(chunk)

    def zeros(self, count: int) -> None:
        for sink in self.sinks:
            sink.zeros(count)

    def end(self) -> None:
        for sink in self.sinks:
            sink.end()

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


def algorithm(digest: str) -> Any:
    """The hash that a digest is of. Raises LayerError for one that is not known."""
    name, _, value = digest.partition(":")
    if name not in ALGORITHMS or not value:
        raise LayerError(f"its digest {digest!r} is of a kind that envbuild does not know")
    return hashlib.new(name)


def compare(what: str, found: Any, digest: str) -> None:
    name, _, value = digest.partition(":")
    if found.hexdigest() != value:
        raise LayerError(f"{what} is {name}:{found.hexdigest()}, and its image says {digest}")
