"""Archives that can only be read from front to back: compressed ones, and what a Docker Engine sends."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from envbuild.core import bombs
from envbuild.core.bounded_tar import ImageTarFile
from envbuild.core.errors import InputError
from envbuild.oci.sources import image_documents
from envbuild.oci.sources.archive_index import ArchiveIndex, convert_archive_errors, plain_path
from envbuild.oci.sources.base import SourceImage, SourceLayer
from envbuild.oci.tar.decompress import GZIP, SKIPPABLE, ZSTD

AGAIN = "save it or copy it here again, e.g. docker save NAME | gzip > FILE"
OTHERS = {"bzip2": b"BZh", "xz": b"\xfd7zXZ\0"}  # as Docker and containers/storage know them
BUFFER = 1 << 20
SMALL = 4 << 20  # bytes of a file that may be a document
ALL = 64 << 20  # bytes of documents that an archive may hold
BLOBS = "blobs/sha256/"
HEAD = 512


def is_compressed(path: Path) -> bool:
    """Return whether an archive is compressed. Raises InputError also for a kind that is not read here: Docker and
    skopeo know it by the same bytes, with which the first name in a tar may begin, too."""
    with convert_archive_errors(path), path.open("rb") as file:
        head = file.read(8)
    for name, magic in OTHERS.items():
        if head.startswith(magic):
            raise InputError(f"{path} is compressed with {name}, which is not read", hint=f"unpack it: {name} -d FILE")
    if head[1:4] == SKIPPABLE and 0x50 <= head[0] <= 0x5F:  # it may span a whole tar
        raise InputError(f"{path} begins with a skippable frame of zstd", hint="unpack it: zstd -d FILE")
    return head.startswith((GZIP, ZSTD))


@contextlib.contextmanager
def open_inflated(path: Path) -> Iterator[IO[bytes]]:
    """Return the content of a compressed file. Damage is raised while it is read, as InputError."""
    import zstandard
    from isal import igzip, isal_zlib

    damages: Any = (EOFError, zstandard.ZstdError, isal_zlib.error, igzip.BadGzipFile)
    with path.open("rb") as file:
        packed = file.read(4).startswith(GZIP)
    try:
        with contextlib.ExitStack() as stack:
            if packed:
                raw: Any = stack.enter_context(igzip.open(path, "rb"))  # type: ignore[no-untyped-call]
            else:
                source = stack.enter_context(path.open("rb"))
                raw = zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True)
            yield raw
    except damages as error:
        raise InputError(f"{path} is damaged, it cannot be unpacked: {error}", hint=AGAIN) from None


def index_compressed_archive(path: Path) -> ArchiveIndex:
    """Return the index of a compressed archive, with its documents. Raises InputError."""
    archive, total, unpacked = ArchiveIndex(path, packed=True), 0, 0
    with (
        convert_archive_errors(path),
        open_inflated(path) as stream,
        ImageTarFile.open(fileobj=stream, mode="r|", bufsize=BUFFER) as tar,
    ):
        limit = bombs.most_unpacked(path.stat().st_size)  # a bomb is refused where that begins
        for entry in iterate_entries(tar):
            unpacked += entry.size
            if unpacked > limit:
                raise InputError(
                    f"{path} unpacks to more than {bombs.RATIO} times its size and 1 GiB: it is a bomb",
                    hint="if you trust it, unpack it: zstd -d FILE, or gunzip FILE",
                )
            name = archive.add(entry)
            if entry.isreg() and entry.size <= SMALL:
                content = cast("IO[bytes]", tar.extractfile(entry)).read()
                if content.lstrip(b" \t\r\n")[:1] in (b"{", b"["):  # of JSON (RFC 8259)
                    archive.contents[name] = content
                    total += len(content)
            if total > ALL:
                raise InputError(f"{path} holds more than {ALL} bytes of JSON", hint="it is not an archive of an image")
    archive.check_folders()
    return archive


def iterate_entries(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the entries of an archive, and release each one after it."""
    while (entry := tar.next()) is not None:
        yield entry
        tar.members.clear()  # type: ignore[attr-defined]  # it would collect all of them, to be able to go back


def with_layer_stream(image: SourceImage, archive: ArchiveIndex) -> SourceImage:
    """`image` with its layers in the order of a compressed archive."""
    layers = {archive.real(cast("partial[Any]", layer.open).args[0]): layer for layer in image.layers}

    @contextlib.contextmanager
    def stream() -> Iterator[Iterator[SourceLayer]]:
        path = archive.path
        with (
            convert_archive_errors(path),
            open_inflated(path) as content,
            ImageTarFile.open(fileobj=content, mode="r|", bufsize=BUFFER) as tar,
        ):
            yield (
                replace(layers[name], open=partial(open_entry, tar, entry))
                for entry in iterate_entries(tar)
                if (name := plain_path(entry.name)) in layers
            )

    return replace(image, stream=stream)


@contextlib.contextmanager
def open_entry(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> Iterator[IO[bytes]]:
    """Return the content of the current entry of the archive."""
    yield cast("IO[bytes]", tar.extractfile(entry))


@contextlib.contextmanager
def open_joined(head: bytes, file: IO[bytes]) -> Iterator[IO[bytes]]:
    yield cast("IO[bytes]", PrefixedFile(head, file))


class PrefixedFile(io.RawIOBase):
    """`head`, then what is left of a file."""

    def __init__(self, head: bytes, file: IO[bytes]) -> None:
        self.head, self.file = head, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self.head[: len(buffer)] or self.file.read(len(buffer))
        self.head = self.head[len(chunk) :]
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def read(self, size: int = -1) -> bytes:
        if self.head or size < 0:
            return super().read(size) or b""
        return self.file.read(size)


def read_sent_layers(tar: tarfile.TarFile, diff_ids: Collection[str]) -> Iterator[SourceLayer]:
    """Yield the possible layers in the archive that a Docker Engine sends, in its order.

    The name of an entry identifies its layer (``blobs/sha256/<diff_id>``, Docker 25 and newer), or else only
    manifest.json at the end; such a layer has no `diff_id`.
    """
    count = len(diff_ids)
    numbers = {diff_id: number for number, diff_id in enumerate(diff_ids, 1)}
    for entry in iterate_entries(tar):
        if not entry.isreg():
            continue
        name = plain_path(entry.name)
        file = cast("IO[bytes]", tar.extractfile(entry))
        head = file.read(HEAD)
        if not may_be_layer(head):
            continue
        digest = f"sha256:{name.removeprefix(BLOBS)}" if name.startswith(BLOBS) else ""
        if digest in numbers:
            label = image_documents.layer_name(numbers[digest], count)
            yield SourceLayer(digest, "", entry.size, label, partial(open_joined, head, file))
        else:
            yield SourceLayer("", digest, entry.size, name, partial(open_joined, head, file))


def may_be_layer(head: bytes) -> bool:
    """Return whether a file begins as a tar does, compressed or not, or an empty one; documents begin with a brace."""
    tar = len(head) == HEAD and (head[257:262] == b"ustar" or not head.strip(b"\0"))
    return tar or head.startswith((GZIP, ZSTD))
