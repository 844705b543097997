"""The blob of a layer of a third-party image, streamed from its source to its target without a copy on this machine."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import IO, cast

from envbuild.net.failures import UnreachableError
from envbuild.oci.sources.base import RawStream, SourceLayer
from envbuild.oci.sources.read_layer import corrupt_layer_error

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class LayerBlob:
    """The blob of `layer`, which has a digest."""

    layer: SourceLayer
    start: int = 0

    @property
    def digest(self) -> str:
        return self.layer.digest.removeprefix("sha256:")

    @property
    def size(self) -> int:
        return self.layer.size

    def open(self) -> IO[bytes]:
        """Return the blob from its first byte."""
        return cast("IO[bytes]", LayerFile(self.layer))


class LayerFile(RawStream):
    """The blob of a layer as a file that can be read again from any position: then its source is opened again.

    Its last byte is returned only if the digest of all is that of the layer. Otherwise `read` raises UnreachableError
    while another place may have the blob, and InputError after the last one.
    """

    def __init__(self, layer: SourceLayer) -> None:
        self.layer, self.opened = layer, 0
        self.at = self.wanted = 0
        self.hash = hashlib.sha256()
        self.source: IO[bytes] | None = None
        self.resources = contextlib.ExitStack()

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.wanted = offset if whence == 0 else self.layer.size + offset
        return self.wanted

    def read(self, size: int = -1) -> bytes:
        left = self.layer.size - self.wanted
        size = left if size < 0 else min(size, left)
        if size <= 0:
            return b""
        if self.source is None or self.wanted < self.at:
            self.reopen()
        while self.at < self.wanted:
            self.next_chunk(min(CHUNK, self.wanted - self.at))
        chunk = self.next_chunk(size)
        self.wanted = self.at
        return chunk

    def reopen(self) -> None:
        """Begin again at the first byte."""
        self.resources.close()
        self.source = self.resources.enter_context(self.layer.open())
        self.opened += 1
        self.at, self.hash = 0, hashlib.sha256()

    def next_chunk(self, size: int) -> bytes:
        """Return the next bytes of the source."""
        assert self.source is not None
        chunk = self.source.read(size)
        self.at += len(chunk)
        self.hash.update(chunk)
        found = f"sha256:{self.hash.hexdigest()}" if self.at == self.layer.size else self.layer.digest
        if not chunk or found != self.layer.digest:
            why = f"expected {self.layer.digest}, got {found}" if chunk else f"it ends after {self.at} bytes"
            self.resources.close()
            self.source = None
            if self.opened < self.layer.places:
                raise UnreachableError(f"{self.layer.name} is damaged: {why}")
            raise corrupt_layer_error(self.layer, why)
        return chunk

    def close(self) -> None:
        self.resources.close()
        super().close()
