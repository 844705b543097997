"""The packs of an image as blobs, where the blobs of its layers have most of their bytes: the rest becomes blobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.digest import file_digest
from envbuild.core.errors import DamagedPackError
from envbuild.core.regular_file import NotRegularError, open_regular
from envbuild.publish.finished_image import open_pack
from envbuild.publish.pack_blobs import MOST, FileSlice, make_pack_blobs
from envbuild.publish.published_pack import PublishedPack
from envbuild.squashfs.pack.frame_writer import Shared
from envbuild.squashfs.write.assembly import TruncatedSourceError, extents_digest

PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class SharedLayer:
    """The blob of a layer, whose file is missing where the target of the image has it, and the `parts` of the pack that
    it has.

    sha256: of the pack that the blob was written from, as it was recorded then. `record` is called with it for a blob
    that was written now."""

    blob: FileSlice
    parts: Sequence[Shared]
    sha256: str = ""
    record: Callable[[str], object] = lambda sha256: None

    @property
    def is_here(self) -> bool:
        """Return whether the file of the blob is there."""
        return self.blob.path.is_file()


def make_shared_blobs(
    packs: Sequence[Path],
    shared: Mapping[str, SharedLayer],
    work: Path,
    progress: Callable[[int], object] = lambda size: None,
) -> tuple[list[PublishedPack], list[FileSlice], dict[str, SharedLayer]]:
    """Return the packs as they are published, and their blobs, as `make_pack_blobs`; of packs that the blobs of their
    layers have (`shared`: by the name of the pack), only the rest becomes blobs. Return the layers that are used.
    `progress` is called with bytes that were read, in total those of the packs.

    A blob that is not here was written from the pack with its `sha256` alone: another member of a store's group can
    have written another pack of the same name since. Raises DamagedPackError for a pack that changes meanwhile.
    """
    folder = work / "rests"
    folder.mkdir()
    wanted = {path: shared[path.name] for path in packs if path.name in shared}
    digests = {path: file_digest(path, follow=False, progress=progress) for path in wanted if not wanted[path].is_here}
    used = {path: layer for path, layer in wanted.items() if digests.get(path, layer.sha256) == layer.sha256}
    rests = {path: folder / path.name for path in used}
    sizes = {path: copy_rest(path, used[path].parts, rest) for path, rest in rests.items()}
    files = [rests.get(path, path) for path in packs]
    published, blobs = make_pack_blobs(files, work, progress, MOST - len(used))
    progress(-sum(rest.stat().st_size for rest in rests.values()))  # counted with their packs, too
    made = dict(zip(packs, published, strict=True))
    for path, layer in used.items():
        made[path] = join_pack(made[path], path, sizes[path], layer, blobs, progress)
    return [made[path] for path in packs], blobs, {path.name: layer for path, layer in used.items()}


def join_pack(
    rest: PublishedPack,
    path: Path,
    size: int,
    layer: SharedLayer,
    blobs: Sequence[FileSlice],
    progress: Callable[[int], object],
) -> PublishedPack:
    """Return the pack at `path` of which `rest` is published and `layer` has the other parts. Its digest is that of
    these blobs together; of a blob that is not here, it was compared before."""
    slices = {blob.digest: blob for blob in [*blobs, *([layer.blob] if layer.is_here else [])]}
    try:
        pack = PublishedPack.of_layer(rest.key, layer.sha256, size, rest.blobs, layer.blob.digest, layer.parts)
        if not layer.is_here:
            return pack
        source = open_pack(pack, path, slices)
        digest = extents_digest([(0, 0, size)], [source], source, progress)
    except (ValueError, TruncatedSourceError):
        raise changed_pack_error(path) from None
    layer.record(digest)
    return PublishedPack(pack.key, digest, size, pack.blobs, pack.layer, pack.shared, pack.rest)


def changed_pack_error(path: Path) -> DamagedPackError:
    """Return the error for a pack that another process replaced while it was published."""
    return DamagedPackError("a pack changed while it was read", "run the command again", str(path))


def copy_rest(pack: Path, parts: Sequence[Shared], out: Path) -> int:
    """Write what a layer's blob lacks of a pack into the new file `out`; return the size of the pack. Raises
    DamagedPackError."""
    try:
        with open_regular(pack, follow=False) as source, out.open("xb") as file:
            size = source.seek(0, 2)
            for start, length in gaps(parts, size):
                source.seek(start)
                while length:
                    chunk = source.read(min(length, PIECE))
                    if not chunk:
                        raise changed_pack_error(pack)
                    file.write(chunk)
                    length -= len(chunk)
    except NotRegularError:
        raise changed_pack_error(pack) from None
    return size


def gaps(parts: Sequence[Shared], size: int) -> Iterator[tuple[int, int]]:
    """Yield (position, length) of what is between `parts` of a pack of `size` bytes."""
    at = 0
    for part in parts:
        if part.pack > at:
            yield at, part.pack - at
        at = part.pack + part.length
    if at < size:
        yield at, size - at
