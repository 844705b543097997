"""The squashfs file that is published, and the check that its packs result in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.core.errors import VerifyError
from envbuild.core.regular_file import open_regular, pin_regular
from envbuild.publish.pack_blobs import FileSlice
from envbuild.publish.published_pack import PublishedPack
from envbuild.squashfs.write.assembly import Extent, Source, SourcePiece, TruncatedSourceError, extents_digest
from envbuild.squashfs.write.extents import Range

SAMPLES, SAMPLE = 200, 4096  # extents whose first and last bytes are compared, and bytes


@dataclass(frozen=True, slots=True)
class FinishedImage:
    """A squashfs file that was written from `packs`: its name, path, sha256 and CPU architecture, the `ranges` of the
    packs in it, and how they were merged. `is_new`: this command wrote it, and digested what it wrote, in a store of
    its user alone."""

    name: str
    architecture: str
    path: Path
    sha256: str
    packs: Sequence[Path]
    ranges: Sequence[Range]
    merge: Mapping[str, Any]
    is_new: bool = False


def open_pack(pack: PublishedPack, path: Path, slices: Mapping[str, FileSlice]) -> Source:
    """Return a pack from the files of its blobs; what is in a blob that the target has from its own file `path`, which
    the blob was written from."""
    own = None if all(part.digest in slices for part in pack.blobs) else pin_regular(path)
    files = {digest: pin_regular(slices[digest].path) for digest in {part.digest for part in pack.blobs} & set(slices)}
    at, pieces = 0, []
    for part in pack.blobs:
        if part.digest in files:
            pieces.append(SourcePiece(files[part.digest], slices[part.digest].start + part.start, part.length))
        elif own:
            pieces.append(SourcePiece(own, at, part.length))
        at += part.length
    return Source.of(pieces)


def check_samples(image: FinishedImage, extents: Sequence[Extent], packs: Sequence[Source]) -> None:
    """Raise VerifyError where a page of the file is not what its pack has there: its bytes were digested when they were
    copied from the packs, so only the places of the extents are compared."""
    places = [at for at, (source, _, _) in enumerate(extents) if source >= 0]
    sampled = set(places[:: max(1, len(places) // SAMPLES)] + places[-1:])
    position = 0
    with open_regular(image.path, follow=False) as file:
        for number, (source, at, length) in enumerate(extents):
            if number in sampled:
                some = min(length, SAMPLE)
                for start in {0, length - some}:
                    found = os.pread(file.fileno(), some, position + start)
                    if found != read_parts(packs[source], at + start, some):
                        raise changed_error(image, f"its bytes at {position + start} are others")
            position += length


def read_parts(source: Source, at: int, length: int) -> bytes:
    """Return bytes of a pack. Raises TruncatedSourceError."""
    return b"".join(os.pread(piece.file.fd, some, start) for piece, start, some in source.parts(at, length))


def check_assembly(
    image: FinishedImage,
    extents: Sequence[Any],
    packs: Sequence[Source],
    tables: FileSlice,
    progress: Callable[[int], object],
) -> None:
    """Raise VerifyError unless the packs and the tables result in the file of the image."""
    made = Source.of([SourcePiece(pin_regular(tables.path), tables.start, tables.size)])
    try:
        found = extents_digest(extents, packs, made, progress)
    except TruncatedSourceError as error:
        found = str(error)
    if found != image.sha256:
        raise changed_error(image, f"expected sha256 {image.sha256}, got {found}")


def changed_error(image: FinishedImage, why: str) -> VerifyError:
    """Return the error for packs that do not result in the file."""
    return VerifyError(
        f"the packs of {image.name} do not result in its squashfs file: {why}",
        hint="run the command again: the file is then written from them again",
        where=str(image.path),
    )
