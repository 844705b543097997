"""Whole squashfs files and packs: written in one call, checked to the last byte, compared path by path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from envbuild.squashfs.pack.file import Pack
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
    with pack_extra_members(packs, extra) as added:
        everything = [*packs, *added]
        return write_tree(everything, merge_packs(everything), out, epoch=epoch, all_root=all_root)


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
