"""Whole squashfs files and packs: written in one call, checked to the last byte, compared path by path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from envbuild.squashfs.codec import crc32
from envbuild.squashfs.pack.file import DATA, Pack, damaged_pack, pack_head, read_pack
from envbuild.squashfs.pack.index import FILE, RAW
from envbuild.squashfs.read.compare import Change, Comparison, pair_entries
from envbuild.squashfs.read.tree import SquashTree
from envbuild.squashfs.write.merge import merge_packs
from envbuild.squashfs.write.writer import ExtraMember, WrittenImage, pack_extra_members, write_tree


def write_image(
    packs: Sequence[Pack], out: Path, *, epoch: int, all_root: bool = True, extra: Sequence[ExtraMember] = ()
) -> WrittenImage:
    """Write the image of `packs` (bottom first) with `extra` members on top to `out` (mode 0644, renamed into place).

    `epoch` (seconds) is the image's creation time and the time of directories that no layer names. With `all_root`
    everything belongs to root and the tree becomes what an unprivileged user can unpack
    (`envbuild.squashfs.write.unprivileged`: no device nodes, nothing below /dev, no extended attributes, u+r files,
    u+rwx directories). Without it owners, device nodes and user., trusted. and security. attributes are preserved.
    Raises EnvbuildError when packs are incompatible or cannot be read.
    """
    with pack_extra_members(packs, extra, out) as added:
        everything = [*packs, *added]
        return write_tree(everything, merge_packs(everything), out, epoch=epoch, all_root=all_root)


def check_pack(path: Path) -> None:
    """Read all of a pack's data and compare its checksums; raises EnvbuildError."""
    pack = read_pack(path)
    columns = pack.index.columns
    with path.open("rb") as file:
        sound = file.read(DATA) == pack_head()
        extents = {
            (columns["starts"][row], columns["stored"][row]): columns["crcs"][row]
            for row, kind in enumerate(pack.index.kinds)
            if kind == FILE and columns["stored"][row]
        }
        for number, at in enumerate(columns["fragment_starts"]):
            extents[at, columns["fragment_words"][number] & ~RAW] = columns["fragment_crcs"][number]
        for (at, left), expected in sorted(extents.items()):
            crc = 0
            file.seek(at)
            while left and (chunk := file.read(min(left, 1 << 20))):
                crc, left = crc32(chunk, crc), left - len(chunk)
            sound = sound and not left and crc == expected
    if not sound:
        raise damaged_pack(pack)


def compare_trees(before: SquashTree, after: SquashTree) -> Iterator[Change]:
    """Yield every path that differs, in path order."""
    comparison = Comparison(before, after)
    for old, new in pair_entries(before, after):
        if old is None or new is None:
            found: dict[str, tuple[str, str]] = {}
        elif not (found := comparison.fields(old, new)):
            continue
        entry = old or new
        assert entry is not None
        yield Change(entry.path, old.inode if old else None, new.inode if new else None, found)
