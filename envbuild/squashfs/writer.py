"""Write a squashfs 4.0 image from packs: copy what lives, write the metadata anew.

The bytes of an image depend on its packs, the added members and `epoch`, on nothing else: not on the number of
threads, not on whether a pack was made now or earlier.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuild.errors import EnvbuildError
from envbuild.oci.member import Member
from envbuild.squashfs.codec import Codec
from envbuild.squashfs.filling import Filled, fill
from envbuild.squashfs.merge import Tree, merge
from envbuild.squashfs.pack import PackWriter
from envbuild.squashfs.packfile import Pack, read_pack

Extra = tuple[Member, bytes]  # a member to add, and its content


@dataclass(frozen=True, slots=True)
class Written:
    """A finished image: its path, size in bytes, inodes, and what was repaired (one line each).

    `copied` bytes came from packs as they were, `repacked` bytes of fragment blocks had to be made anew.
    """

    path: Path
    size: int
    inodes: int
    messages: tuple[str, ...] = ()
    copied: int = 0
    repacked: int = 0


def write_image(
    packs: Sequence[Pack], out: Path, *, epoch: int, all_root: bool = True, extra: Sequence[Extra] = ()
) -> Written:
    """Write the image of `packs` (bottom first) with `extra` members on top to `out` (mode 0644, renamed into place).

    `epoch` (seconds) is the image's creation time and the time of directories that no layer names. With `all_root`
    everything belongs to root and the tree becomes what an unprivileged user can unpack (`envbuild.squashfs.plain`:
    no device nodes, nothing below /dev, no extended attributes, u+r files, u+rwx directories). Without it owners,
    device nodes and user., trusted. and security. attributes are kept. Raises EnvbuildError when packs do not fit
    together or cannot be read.
    """
    with adding(packs, extra, out) as added:
        everything = [*packs, *added]
        return write_tree(everything, merge(everything), out, epoch=epoch, all_root=all_root)


def write_tree(
    packs: Sequence[Pack], tree: Tree, out: Path, *, epoch: int, all_root: bool = True, jobs: int = 0
) -> Written:
    """As `write_image`, for a tree that `packs` were merged to (it is changed: numbered, and made plain when
    `all_root`). `jobs`: threads that compare and compress what must be done anew (0: as many as this process may use).
    """
    codec, block = parameters(packs)
    with image_file(out) as (file, temporary):
        filled = fill(file, packs, tree, codec, block, epoch=epoch, all_root=all_root, jobs=jobs)
        place(temporary, out)
    return written(out, filled)


@contextlib.contextmanager
def image_file(out: Path) -> Iterator[tuple[int, Path]]:
    """A new file beside `out`, as descriptor and path; gone at the end if it was not renamed."""
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield file, temporary
    finally:
        os.close(file)
        temporary.unlink(missing_ok=True)


def place(temporary: Path, out: Path) -> None:
    """Give a finished file its name, once it passed the check."""
    from envbuild.squashfs.reader import check_image

    check_image(temporary)
    temporary.replace(out)


def written(out: Path, filled: Filled) -> Written:
    """What is told of a finished image."""
    return Written(out, filled.size, filled.inodes, filled.messages, filled.copied, filled.repacked)


def parameters(packs: Sequence[Pack]) -> tuple[Codec, int]:
    """Codec and block size that all packs share; the level for new blocks is the lowest pack's."""
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
def adding(packs: Sequence[Pack], extra: Sequence[Extra], out: Path) -> Iterator[tuple[Pack, ...]]:
    """The pack of `extra` members, beside `out` as long as it is needed; nothing when there are none."""
    if not extra:
        yield ()
        return
    codec, block = parameters(packs)
    path = out.with_name(f".{out.name}.{secrets.token_hex(4)}.extra")
    try:
        with PackWriter(path, codec=codec.name, level=codec.level, block=block, jobs=1) as writer:
            give(writer, extra)
        yield (read_pack(path),)
    finally:
        path.unlink(missing_ok=True)


def give(writer: PackWriter, extra: Sequence[Extra]) -> None:
    """Put members with their content into a pack, in byte order of their paths."""
    for member, content in sorted(extra, key=lambda item: item[0].path):
        writer.begin(member)
        writer.data(content)
        writer.end()
