"""The packs of an image as blobs: small neighbours joined, because each blob costs round trips; large packs split,
because a broken connection costs a whole blob where a registry has no chunks."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from envbuild.core.errors import DamagedPackError
from envbuild.core.regular_file import NotRegularError, open_regular
from envbuild.publish.published_pack import BlobPart, PublishedPack

SMALL = 1 << 20  # packs below it are joined: a blob costs 50 ms and three requests
JOINED = 4  # times the limit of a small pack: the most that a joined blob has
LARGE, PART = 2 << 30, 1 << 30  # packs above the first are split into parts of the second
MOST = 90  # packs and joined blobs of an artifact: 100 layers are safe for unknown registries
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class FileSlice:
    """`size` bytes from `start` on of the file `path`: the content of the blob `digest` (hex)."""

    digest: str
    size: int
    path: Path
    start: int = 0
    title: str = ""

    def open(self) -> IO[bytes]:
        """Return the file. Raises DamagedPackError if something else has its name by now: a link of another member of a
        store's group would send a file that this user alone may read."""
        try:
            return open_regular(self.path, follow=False)
        except NotRegularError:
            hint = "run the command again"
            raise DamagedPackError("a file was replaced while it was published", hint, str(self.path)) from None


def make_pack_blobs(
    packs: Sequence[Path], work: Path, progress: Callable[[int], object] = lambda size: None, most: int = MOST
) -> tuple[list[PublishedPack], list[FileSlice]]:
    """Return the packs as they are published, and their blobs, each once; joined ones are written into `work`.

    `progress` is called with the bytes of packs that were read. A layer may be in an image more than once. `most`:
    blobs, but for parts of large packs.
    """
    distinct = list(dict.fromkeys(packs))
    found, blobs = _make_blobs(distinct, work, progress, most)
    published = dict(zip(distinct, found, strict=True))
    return [published[path] for path in packs], blobs


def _make_blobs(
    packs: Sequence[Path], work: Path, progress: Callable[[int], object], most: int
) -> tuple[list[PublishedPack], list[FileSlice]]:
    sizes = [path.stat().st_size for path in packs]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        digests = list(pool.map(lambda path, size: digest_parts(path, size, progress), packs, sizes))
    found: list[PublishedPack] = []
    blobs: dict[str, FileSlice] = {}

    def add(blob: FileSlice) -> str:
        return blobs.setdefault(blob.digest, blob).digest

    for group in group_packs(sizes, most):
        if len(group) > 1:
            joined = join_packs([packs[number] for number in group], work / f"joined-{group[0]}")
            add(joined)
            at = 0
            for number in group:
                parts: tuple[BlobPart, ...] = (BlobPart(joined.digest, at, sizes[number]),)
                found.append(PublishedPack(packs[number].name, digests[number][0], sizes[number], parts))
                at += sizes[number]
            continue
        number = group[0]
        path, size, (whole, *split) = packs[number], sizes[number], digests[number]
        if split:
            starts = range(0, size, PART)
            slices = [
                FileSlice(digest, min(PART, size - start), path, start, f"{path.name}.part{count}")
                for count, (digest, start) in enumerate(zip(split, starts, strict=True), 1)
            ]
        else:
            slices = [FileSlice(whole, size, path, 0, path.name)]
        parts = tuple(BlobPart(add(blob), 0, blob.size) for blob in slices)
        found.append(PublishedPack(path.name, whole, size, parts))
    return found, list(blobs.values())


def group_packs(sizes: Sequence[int], most: int = MOST) -> list[list[int]]:
    """Return the numbers of the packs of each blob: neighbours that are small together, so that there are at most
    `most`."""
    limit = SMALL
    while len(groups := list(_groups(sizes, limit))) > most:
        limit *= 2
    return groups


def _groups(sizes: Sequence[int], limit: int) -> Iterator[list[int]]:
    group: list[int] = []
    total = 0
    for number, size in enumerate(sizes):
        if group and (size >= limit or total + size > JOINED * limit):
            yield group
            group, total = [], 0
        if size >= limit:
            yield [number]
        else:
            group.append(number)
            total += size
    if group:
        yield group


def digest_parts(path: Path, size: int, progress: Callable[[int], object] = lambda size: None) -> list[str]:
    """Return the sha256 of a pack, and of each of its parts if it is split. Raises DamagedPackError."""
    whole, found, part, left = hashlib.sha256(), list[str](), hashlib.sha256(), PART
    with open_regular(path, follow=False) as file:
        while chunk := file.read(min(CHUNK, left)):
            whole.update(chunk)
            progress(len(chunk))
            left -= len(chunk)
            if size > LARGE:
                part.update(chunk)
                if not left:
                    found.append(part.hexdigest())
                    part = hashlib.sha256()
            left = left or PART
        if file.tell() != size:
            raise DamagedPackError("a pack changed while it was read", "run the command again", str(path))
    if size > LARGE and size % PART:
        found.append(part.hexdigest())
    return [whole.hexdigest(), *found]


def join_packs(packs: Sequence[Path], out: Path) -> FileSlice:
    """Write small packs one after another into a file; return it."""
    with out.open("xb") as file:
        for path in packs:
            with open_regular(path, follow=False) as pack:
                shutil.copyfileobj(pack, file, CHUNK)
    with out.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    return FileSlice(digest, out.stat().st_size, out, 0, f"packs-{digest[:12]}")
