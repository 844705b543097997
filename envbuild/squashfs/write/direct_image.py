"""An image made straight from its layers: their packs are written one after another into the image's own file, data
that is not live is removed in place, and the tables follow. No second copy on disk, and the same bytes as from cached
packs.

    with DirectImage(out, codec="zstd", level=3, block=131072) as image:
        for each layer, bottom first: a `Sink` is image.layer()
        tree = merge(image.packs)
        tree.apply(image.add(members))          # as often as needed
        written = image.finish(tree, epoch=epoch)

Why that works: a pack's data begins on a page, so that pages of the file are pages of the pack, and the place of each
piece in the image (`envbuild.squashfs.write.extents`) is never behind the place where it was written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from envbuild.core.errors import EnvbuildError
from envbuild.oci.tar.name_count import NameCount
from envbuild.squashfs.codec import Codec
from envbuild.squashfs.pack.file import DATA, PAGE, Pack, count_names
from envbuild.squashfs.pack.workers import Workers
from envbuild.squashfs.pack.writer import PackWriter, Region
from envbuild.squashfs.write.image_body import write_image_body
from envbuild.squashfs.write.merge import MergedTree
from envbuild.squashfs.write.output_file import open_output, publish_image
from envbuild.squashfs.write.writer import (
    ExtraMember,
    WrittenImage,
    describe_written_image,
    write_extra_members,
)


class DirectImage:
    """An image in the making: a file beside `out` that gets its name in `finish`, and is gone otherwise.

    `packs` are the layers so far, bottom first. `jobs` threads (0: as many as this process may use). Raises SpecError
    for wrong parameters.
    """

    begun = None  # no tree is made before all layers are there

    def __init__(self, out: Path, *, codec: str = "zstd", level: int = 3, block: int = 131072, jobs: int = 0) -> None:
        self.out, self.codec, self.block, self.jobs = out, Codec(codec, level), block, jobs
        self.packs: list[Pack] = []
        self.names = NameCount("the image")
        self.end = DATA  # where the next pack's data begins
        self.writer: PackWriter | None = None
        self.stack = contextlib.ExitStack()
        self.workers = self.stack.enter_context(Workers(jobs))
        self.file = self.stack.enter_context(open_output(out))

    def layer(self) -> PackWriter:
        """Return the sink of the next layer; one at a time: it must be closed before the next one is requested. One
        that was discarded is written over.
        """
        self._complete()
        self.writer = PackWriter(
            self.file.handle,  # this file is read again, not another one that has its name by then
            codec=self.codec.name,
            level=self.codec.level,
            block=self.block,
            jobs=self.workers,
            into=Region(self.file.fd, self.end - DATA, self._done),
        )
        return self.writer

    def add(self, extra: Sequence[ExtraMember]) -> Pack:
        """Write a layer of `extra` members; return its pack, which the caller applies to the tree."""
        with self.layer() as writer:
            write_extra_members(writer, extra)
        return self.packs[-1]

    def finish(self, tree: MergedTree, *, epoch: int, all_root: bool = True, keep_dev: bool = False) -> WrittenImage:
        """Write the image of `tree`, which `packs` were merged to; see `envbuild.squashfs.write.writer.write_tree`."""
        self._complete()
        filled = write_image_body(
            self.file.fd,
            self.packs,
            tree,
            self.codec,
            self.block,
            epoch=epoch,
            all_root=all_root,
            keep_dev=keep_dev,
            jobs=self.jobs,
            spool=self.end,
        )
        stamp = publish_image(self.file)
        self.discard()
        return describe_written_image(self.out, filled, stamp)

    def discard(self) -> None:
        """Remove the unfinished file."""
        if self.writer is not None:
            self.writer.discard()
            self.writer = None
        self.stack.close()

    def __enter__(self) -> DirectImage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def _complete(self) -> None:
        if self.writer is not None and self.writer.open:
            raise EnvbuildError("a layer of the image is not complete")

    def _done(self, pack: Pack) -> None:
        count_names(pack.index, self.names)
        self.packs.append(pack)
        end = pack.base + pack.end
        self.end = end + -end % PAGE
        self.writer = None
