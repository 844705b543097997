"""The writer of squashfs 4.0 images from packs: it copies live data and writes new metadata.

The bytes of an image depend on its packs, the added members and `epoch`, on nothing else: not on the number of
threads, not on whether a pack was made now or earlier.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import EnvbuildError
from envbuild.oci.tar.member import Member
from envbuild.squashfs.codec import Codec
from envbuild.squashfs.pack.file import Pack
from envbuild.squashfs.pack.writer import PackWriter, Region
from envbuild.squashfs.write.image_body import ImageBody, write_image_body
from envbuild.squashfs.write.merge import MergedTree
from envbuild.squashfs.write.output_file import Stamp, open_output, publish_image

ExtraMember = tuple[Member, bytes]  # a member to add, and its content


@dataclass(frozen=True, slots=True)
class WrittenImage:
    """A finished image: its path, size in bytes, inodes, and what was repaired (one line each).

    `copied` bytes came from packs as they were, `repacked` bytes of fragment blocks were packed again. `sha256` is
    empty unless it was requested; then the data was compared with the checksums of its packs. `stamp`: of the file that
    was written, whichever has its name by now.
    """

    path: Path
    size: int
    inodes: int
    messages: tuple[str, ...] = ()
    copied: int = 0
    repacked: int = 0
    sha256: str = ""
    stamp: Stamp | None = None


def write_tree(
    packs: Sequence[Pack],
    tree: MergedTree,
    out: Path,
    *,
    epoch: int,
    all_root: bool = True,
    keep_dev: bool = False,
    jobs: int = 0,
    digest: bool = False,
) -> WrittenImage:
    """Write the image of `tree`, which `packs` (bottom first) were merged to, to `out` (mode 0644, renamed into place).
    The tree is changed: numbered, and made plain when `all_root`, except below /dev with `keep_dev`.

    `epoch` (seconds) is the image's creation time and the time of directories that no layer names. With `all_root`
    everything belongs to root and the tree becomes what an unprivileged user can unpack
    (`envbuild.squashfs.write.unprivileged`: no device nodes, nothing below /dev, no extended attributes, u+r files,
    u+rwx directories). Without it owners, device nodes and user., trusted. and security. attributes are preserved.
    `jobs`: threads that compare and compress what is packed again (0: as many as this process may use). `digest`:
    compute the file's sha256 while it is written, and compare its data with the checksums of the packs before it is
    renamed. Raises EnvbuildError when packs are incompatible, DamagedPackError when one is damaged.
    """
    codec, block = common_codec(packs)
    with open_output(out) as file:
        filled = write_image_body(
            file.fd,
            packs,
            tree,
            codec,
            block,
            epoch=epoch,
            all_root=all_root,
            keep_dev=keep_dev,
            jobs=jobs,
            digest=digest,
        )
        stamp = publish_image(file)
    return describe_written_image(out, filled, stamp)


def describe_written_image(out: Path, filled: ImageBody, stamp: Stamp) -> WrittenImage:
    """Return the summary of a finished image."""
    counts = (filled.size, filled.inodes, filled.messages, filled.copied, filled.repacked, filled.sha256)
    return WrittenImage(out, *counts, stamp)


def common_codec(packs: Sequence[Pack]) -> tuple[Codec, int]:
    """Return the codec and block size that all packs share; the level for new blocks is the lowest pack's."""
    if not packs:
        raise EnvbuildError("an image needs at least one layer")
    index = packs[0].index
    for pack in packs:
        if (pack.index.codec.name, pack.index.block) != (index.codec.name, index.block):
            raise EnvbuildError(
                f"packs differ: {index.codec.name} with blocks of {index.block} bytes, and {pack.index.codec.name} with"
                f" {pack.index.block}",
                hint="export again with one codec and one block size",
                where=str(pack.path),
            )
    return index.codec, index.block


@contextlib.contextmanager
def pack_extra_members(packs: Sequence[Pack], extra: Sequence[ExtraMember]) -> Iterator[tuple[Pack, ...]]:
    """Yield the pack of `extra` members, which is in memory; nothing when there are none."""
    if not extra:
        yield ()
        return
    codec, block = common_codec(packs)
    file = os.memfd_create("extra")
    written: list[Pack] = []
    try:
        into, handle = Region(file, 0, written.append), Path(f"/proc/self/fd/{file}")
        with PackWriter(handle, codec=codec.name, level=codec.level, block=block, jobs=1, into=into) as writer:
            write_extra_members(writer, extra)
        yield (*written,)
    finally:
        os.close(file)


def write_extra_members(writer: PackWriter, extra: Sequence[ExtraMember]) -> None:
    """Put members with their content into a pack, in byte order of their paths."""
    for member, content in sorted(extra, key=lambda item: item[0].path):
        writer.begin(member)
        writer.data(content)
        writer.end()
