"""Reader of the layers of a source, which checks them against the digests of their image.

Errors distinguish two causes, because the remedies differ. A blob with another digest than the image names was damaged
in transfer or in storage: fetch or save it again. A blob with the right digest that is not a valid layer was pushed in
that state: fetching it again does not help.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from envbuild.core import bombs
from envbuild.core.errors import InputError
from envbuild.oci.sources.base import SourceLayer
from envbuild.oci.tar.chunks import CHUNK, Readable
from envbuild.oci.tar.decompress import convert_layer_errors, open_decompressed
from envbuild.oci.tar.fields import LayerTooLargeError, UnusableNameError
from envbuild.oci.tar.member import Kind, Member, Sink
from envbuild.oci.tar.reader import LayerError, read_tar
from envbuild.oci.tar.unpack_limit import check_ratio

PUSHED = "use another image or tag, or ask the publisher of this one to rebuild and push it"
AGAIN = {
    "docker://": "run the command again; if that does not help, the registry or its mirror has a damaged copy: push "
    "the image there again",
    "docker-daemon:": "pull or build the image again, e.g. docker pull NAME",
    "docker-archive:": "save or copy the archive again, e.g. docker save -o FILE NAME",
    "oci:": "fetch or copy the layout again, e.g. skopeo copy docker://NAME:TAG oci:DIR",
}


def corrupt_layer_error(layer: SourceLayer, why: str) -> InputError:
    """Return the error for bytes that are not those that the image names."""
    hints = [hint for prefix, hint in AGAIN.items() if layer.image.startswith(prefix)]
    return InputError(f"{layer_label(layer)} is damaged: {why}", hint=hints[0] if hints else "fetch or save it again")


def malformed_layer_error(layer: SourceLayer, why: str) -> InputError:
    """Return the error for bytes that the image names, but that are not a valid layer."""
    digest = layer.digest or layer.diff_id
    return InputError(
        f"{layer_label(layer)} is malformed: it is {digest}, as its image names, but not a valid layer: {why}",
        hint=PUSHED,
    )


def unusable_layer_error(layer: SourceLayer, fault: LayerError) -> InputError:
    """Return the error for a layer that is as it was built, with a name that Linux does not allow."""
    return InputError(f"{layer_label(layer)} cannot be used: {fault.message}", hint=fault.hint)


def layer_label(layer: SourceLayer) -> str:
    """Return what messages call a layer."""
    return f"{layer.name} of {layer.image}" if layer.image else layer.name


LIMIT = 1 << 42  # bytes of an unpacked layer: more than any image has, less than hours of zeros
MEMBER = 2 * 512  # bytes that a header counts in addition: it takes more time than as many bytes of a file
UNNAMED = "sha256:?"  # of a layer that does not name itself: Docker's are all sha256
ALGORITHMS = ("sha256", "sha384", "sha512")


@dataclass(frozen=True, slots=True)
class LayerSize:
    """Size of a layer that was read: the bytes of its tar, and its members."""

    bytes: int
    members: int


def read_layer(layer: SourceLayer, sinks: Sequence[Sink], *, limit: int = LIMIT, ratio: int = bombs.RATIO) -> LayerSize:
    """Read `layer` into `sinks` and close them.

    `limit`: the most bytes that its tar may have; `ratio`: how many times the size of its blob it may be when it is
    larger than 1 GiB (0: any). Raises InputError for a blob that is damaged, is not the one that the image names, or
    is not a valid tar (the message distinguishes them), and what the sinks and the source raise. The sinks are then not
    closed: the caller discards their content.
    """
    with convert_layer_errors(layer.name), layer.open() as stream:
        blob = _BlobReader(stream, layer)
        fan = _FanOut(sinks)
        with open_decompressed(blob) as content:
            tar = _TarReader(content, blob, layer, fan, limit, ratio)
            try:
                size = read_tar(tar, fan)
                fault = None
            except LayerTooLargeError:
                raise
            except LayerError as error:
                fault = error
                tar.drain()
        check_layer(layer, blob, tar, fault)
    fan.close()
    return LayerSize(size, fan.members)


def read_blob(layer: SourceLayer) -> None:
    """Read the blob of a layer, without unpacking it, and compare it with its digest: enough where it is known that
    the blob with this digest is the layer. Raises InputError, and what the source raises."""
    with convert_layer_errors(layer.name), layer.open() as stream:
        if why := _BlobReader(stream, replace(layer, diff_id="")).differs():
            raise corrupt_layer_error(layer, why)


def read_unnamed_layer(layer: SourceLayer, sink: Sink | None = None) -> str:
    """Read a layer of a stream that does not name itself, as `read_layer` does. Return its diff_id."""
    with convert_layer_errors(layer.name), layer.open() as stream:
        blob, fan = _BlobReader(stream, layer), _FanOut([sink] if sink else [])
        with open_decompressed(blob) as content:
            tar = _TarReader(content, blob, layer, fan, LIMIT, bombs.RATIO)
            read_tar(tar, fan)
        if why := blob.differs():
            raise corrupt_layer_error(layer, why)
    if sink:
        sink.close()
    return f"sha256:{tar.hash.hexdigest()}"


def check_layer(layer: SourceLayer, blob: _BlobReader, tar: _TarReader, fault: LayerError | None) -> None:
    """Raise InputError for a layer that is not the one that its image names, or that has a `fault` all the same."""
    if why := blob.differs():
        raise corrupt_layer_error(layer, why)
    why = tar.differs()
    if blob.hash is None and (why or not tar.whole):  # only the tar's digest can show damage
        raise corrupt_layer_error(layer, why or f"it cannot be unpacked: {fault.message if fault else ''}")
    if isinstance(fault, UnusableNameError) and not why:
        raise unusable_layer_error(layer, fault)
    if fault or why:
        raise malformed_layer_error(layer, fault.message if fault else why)


class _BlobReader:
    """Blob while it is read. `size`: bytes read of it; `known`: its size, None if unknown."""

    def __init__(self, stream: Readable, layer: SourceLayer) -> None:
        self.stream, self.layer, self.size = stream, layer, 0
        self.known = layer.size if layer.size or layer.digest else None
        # A blob that is not compressed has one digest: the tar's, which is taken anyway.
        self.hash = new_hash(layer.digest) if layer.digest and layer.digest != layer.diff_id else None

    def read(self, size: int) -> bytes:
        chunk = self.stream.read(size)
        self.size += len(chunk)
        if self.known is not None and self.size > self.known:
            raise LayerError(f"it is larger than the {self.known} bytes that its image names")
        if self.hash is not None:
            self.hash.update(chunk)
        return chunk

    def differs(self) -> str:
        """Read the blob to its end; return how it differs from the one that the image names (empty: not at all)."""
        try:
            while self.read(CHUNK):
                pass
        except LayerError as error:
            return error.message
        why = "" if self.hash is None else digest_mismatch("its blob", self.hash, self.layer.digest)
        if self.known is not None and self.size != self.known:
            return f"it has {self.size} bytes, and its image names {self.known}" + (f"; {why}" if why else "")
        return why


class _TarReader:
    """Unpacked blob while it is read. `whole`: it was read to its end; `cut`: unpacking failed before."""

    def __init__(
        self, content: Readable, blob: _BlobReader, layer: SourceLayer, fan: _FanOut, limit: int, ratio: int
    ) -> None:
        self.content, self.blob, self.layer, self.limit, self.ratio = content, blob, layer, limit, ratio
        self.fan = fan
        self.hash = new_hash(layer.diff_id or UNNAMED)
        self.size, self.whole, self.cut = 0, False, False

    def read(self, size: int) -> bytes:
        try:
            piece = self.content.read(size)
        except LayerError:
            self.cut = True  # nothing comes after it, which is not the tar's end
            raise
        self.size += len(piece)
        if self.size > self.limit:
            raise LayerTooLargeError(f"it unpacks to more than {self.limit} bytes, which is the limit")
        if self.size + MEMBER * self.fan.members > bombs.SUSPECT and self.ratio:
            self._check_ratio()
        self.hash.update(piece)
        self.whole = not piece and not self.cut
        return piece

    def _check_ratio(self) -> None:
        """Raise LayerTooLargeError for a blob that unpacks to much more than it has and than its files announce."""
        packed, read = self.blob.known or self.blob.size, self.blob.size
        announced = min(self.fan.announced, bombs.EMPTY)  # by the headers of regular files
        check_ratio(self.size + MEMBER * self.fan.members - announced, packed, read, self.ratio)

    def drain(self) -> None:
        """Read what is left, as far as it can be unpacked, for its digest."""
        if self.blob.hash is None:
            with contextlib.suppress(LayerError):
                while self.read(CHUNK):
                    pass

    def differs(self) -> str:
        """Return how the tar, read to its end, differs from that of the configuration (empty: not at all)."""
        # a blob that has the tar's digest is the tar
        what = "its blob" if self.blob.hash is None and self.layer.digest else "its tar"
        return digest_mismatch(what, self.hash, self.layer.diff_id) if self.whole else ""


class _FanOut:
    """Sink that passes everything to several others, and counts members and the bytes that regular files announce."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks, self.members, self.announced = sinks, 0, 0
        if len(sinks) == 1:
            self.data, self.zeros, self.end = sinks[0].data, sinks[0].zeros, sinks[0].end  # type: ignore[method-assign]

    def begin(self, member: Member) -> None:
        self.members += 1
        self.announced += member.size if member.kind is Kind.FILE else 0
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


def new_hash(digest: str) -> Any:
    """Return a new hash of the algorithm of a digest. Raises LayerError for an unknown one."""
    name, _, value = digest.partition(":")
    if name not in ALGORITHMS or not value:
        raise LayerError(f"its digest {digest!r} is of a kind that envbuild does not support")
    return hashlib.new(name)


def digest_mismatch(what: str, found: Any, digest: str) -> str:
    """Return how a hash differs from a digest; empty if they match."""
    name, _, value = digest.partition(":")
    return "" if found.hexdigest() == value else f"{what} is {name}:{found.hexdigest()}, and its image names {digest}"
