"""Packs of a published squashfs file: those that the store has, those that are fetched, and the file of them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from envbuild.core.byte_progress import count_bytes
from envbuild.core.digest import file_digest
from envbuild.core.errors import InputError, VerifyError
from envbuild.core.regular_file import PinnedFile, pin_regular
from envbuild.core.store.permissions import record_use
from envbuild.core.store.store import Store
from envbuild.core.text import amount, counted
from envbuild.export.write_errors import raise_write_errors
from envbuild.net.arrival import Arrival, DiscardedError
from envbuild.net.download import Transfer
from envbuild.net.lanes import Lanes
from envbuild.publish.blob_fetch import PARALLEL, BlobFetch, fetch_blobs
from envbuild.publish.find_squashfs import PublishedSquashfs
from envbuild.publish.published_pack import BlobPart, PublishedPack
from envbuild.publish.remote_blob import obtain
from envbuild.publish.remote_image import RemoteImage
from envbuild.publish.squashfs_document import MAX_REPEATS
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.write.assembly import TABLES, Source, SourcePiece, TruncatedSourceError, write_extents
from envbuild.squashfs.write.output_file import open_output, publish_image


def has_pack(store: Store, pack: PublishedPack) -> bool:
    """Return whether a store built a pack of this name and size; its content is not compared."""
    try:
        found = (store.root / "packs" / pack.key).lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == pack.size


@dataclass(slots=True)
class Pull:
    """One pull of `published` into the store of a workspace. `fetched`: digest (hex) → bytes, of blobs that came."""

    image: RemoteImage
    published: PublishedSquashfs
    transfer: Transfer
    workspace: Workspace
    fetched: dict[str, int] = field(default_factory=dict)
    lanes: Lanes = field(default_factory=lambda: Lanes(PARALLEL))
    own: dict[str, Path] = field(default_factory=dict)  # packs that the store made itself, by key
    pinned: dict[str, PinnedFile] = field(default_factory=dict)  # open blobs
    discarded: bool = False  # bytes of a blob, which the file that was written may have

    @property
    def store(self) -> Store:
        return self.workspace.store

    def find_own_packs(self) -> None:
        """Find the published packs that this store made itself, by name and size: the sha256 of the file decides."""
        for pack in self.published.document.packs:
            stored = all(self.store.has_blob(digest) for digest in {part.digest for part in pack.blobs})
            if not stored and has_pack(self.store, pack):
                self.own[pack.key] = self.store.root / "packs" / pack.key
                record_use(self.own[pack.key])

    def drop_other_packs(self) -> bool:
        """Compare the packs of this store with the published ones; drop those that are others, and return whether there
        were some."""
        packs = {pack.key: pack for pack in self.published.document.packs if pack.key in self.own}
        if not packs:
            return False
        reporter, total = self.workspace.reporter, sum(pack.size for pack in packs.values())
        reporter.start("packs", f"comparing {counted(len(packs), 'pack')} of this store with those that were published")
        add = count_bytes(reporter, "packs", total)
        others = []
        for key, pack in packs.items():
            found = ""
            with contextlib.suppress(OSError):  # removed meanwhile
                found = file_digest(self.own[key], follow=False, progress=add)
            if found != pack.digest:
                others.append(key)
        for key in others:
            del self.own[key]
        reporter.finish("packs")
        return bool(others)

    def wanted(self) -> dict[str, int]:
        """Return the blobs (hex) that the file is made of, with their sizes: the tables first, then in the order of
        the packs, in which the file is written."""
        document = self.published.document
        packs = [pack for pack in document.packs if pack.key not in self.own]
        parts = [document.tables, *(part for pack in packs for part in pack.blobs)]
        sizes = self.published.sizes
        return {part.digest: sizes[part.digest] for part in parts}

    @contextlib.contextmanager
    def fetch(self) -> Iterator[BlobFetch]:
        """Fetch what the store lacks, while the context writes the file of what has arrived. Raises InputError,
        VerifyError, EngineError."""
        reporter, store = self.workspace.reporter, self.store
        missing = {digest: size for digest, size in self.wanted().items() if not store.has_blob(digest, size)}
        if not missing:
            yield BlobFetch()
            return
        store.check_space(missing.items())
        total = sum(missing.values())
        self.transfer.progress, self.transfer.lanes = count_bytes(reporter, "pull", total), self.lanes
        reporter.start("pull", f"pulling {self.image.name}: {counted(len(missing), 'blob')}, {amount(total)}")
        try:
            with fetch_blobs(self.obtain, missing, self.transfer.stop) as fetching:
                yield fetching
            self.fetched.update(missing)
        finally:
            reporter.finish("pull")

    def check_size(self) -> None:
        """Raise VerifyError for a file that is far larger than the blobs that it is made of."""
        real = sum(path.stat().st_size for path in self.own.values()) + sum(self.wanted().values())
        if self.published.document.size > MAX_REPEATS * real:
            raise VerifyError(
                f"the squashfs file of {self.image.name} is far larger than its packs",
                hint="publish it again: envbuild publish NAME --to PLACE --move",
            )

    def obtain(self, digest: str, size: int, arrival: Arrival) -> None:
        """Fetch one blob (hex), as soon as the registry may have one request more."""
        with self.lanes.lane():
            obtain(self.image, self.transfer, digest, size, arrival)

    def open_blob(self, digest: str) -> PinnedFile:
        """Return an open blob (hex). Raises TruncatedSourceError if it has another size than the artifact states: that
        bounds the file."""
        if known := self.pinned.get(digest):  # small packs share one
            return known
        file = pin_regular(self.store.blob(digest))
        if os.fstat(file.fd).st_size != self.published.sizes[digest]:
            raise TruncatedSourceError("a blob has another size")
        self.pinned[digest] = file
        return file

    def source(self, number: int, fetching: BlobFetch) -> Source:
        """Return a pack (its number), or the tables, as open files, once its first bytes have arrived. Raises
        DiscardedError."""
        document = self.published.document
        if number == TABLES:
            parts: Sequence[BlobPart] = [document.tables]
        else:
            pack = document.packs[number]
            if own := self.own.get(pack.key):
                return Source.of([SourcePiece(pin_regular(own), 0, pack.size)])
            parts = pack.blobs
        files = {digest: self.open_part(digest, fetching) for digest in dict.fromkeys(part.digest for part in parts)}
        return Source.of(
            [
                SourcePiece(file, part.start, part.length, arrived)
                for part in parts
                for file, arrived in [files[part.digest]]
            ]
        )

    def open_part(self, digest: str, fetching: BlobFetch) -> tuple[PinnedFile, Callable[[int], int] | None]:
        """Return a blob (hex), and of one of which more may arrive while it is read how to wait for that."""
        arrival = fetching.begun(digest)
        if arrival and arrival.file:
            return arrival.file, partial(fetching.arrived, arrival)
        return self.open_blob(digest), None

    def write(self, out: Path) -> bool:
        """Fetch what is missing and write the file; False if its sha256 is another one than was published: then
        nothing has changed."""
        document = self.published.document
        self.pinned.clear()  # what was damaged was removed
        self.check_size()
        add = count_bytes(self.workspace.reporter, "squashfs", document.size)
        with raise_write_errors(out), open_output(out) as file:
            with self.fetch() as fetching:
                try:
                    found = write_extents(
                        file.fd, document.extents, lambda number: self.source(number, fetching), document.size, add
                    )
                except (TruncatedSourceError, DiscardedError):
                    found = ""
            self.discarded = any(arrival.discarded for arrival in fetching.arrivals.values())
            if found != document.sha256:
                return False
            os.fsync(file.fd)  # what the kernel has not written meanwhile
            publish_image(file)
        return True

    def drop_damaged(self) -> list[str]:
        """Remove the blobs whose content is not what their digest names; return those. Raises VerifyError for
        another one whose size is not what the artifact states."""
        found = []
        for digest, stated in self.wanted().items():
            try:
                self.store.check_blob(digest)
            except InputError as error:
                found.append(digest)
                self.workspace.reporter.warn(error.message)
                continue
            if self.store.has_blob(digest) and (size := self.store.blob(digest).stat().st_size) != stated:
                raise VerifyError(
                    f"the blob sha256:{digest} of {self.image.name} has {size} bytes, and the artifact states {stated}",
                    hint="publish it again: envbuild publish NAME --to PLACE --move",
                )
        return found

    def run(self, out: Path) -> None:
        """Fetch what is missing and write the file. Raises VerifyError."""
        self.find_own_packs()
        self.workspace.reporter.start("squashfs", f"squashfs {out.name}: {amount(self.published.document.size)}")
        whole = self.write(out)
        if not whole:
            damaged = self.drop_damaged()
            if self.drop_other_packs() or damaged or self.discarded:
                whole = self.write(out)
        self.workspace.reporter.finish("squashfs")
        if not whole:
            raise VerifyError(
                f"the packs of {self.image.name} do not result in the squashfs file that was published: "
                f"sha256 {self.published.document.sha256}",
                hint="publish it again: envbuild publish NAME --to PLACE --move",
            )
