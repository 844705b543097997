"""Members of a canonical layer from the upper directory of an overlay, and the upper directory made equal to them.

`scan` decides what the layer contains: nothing that a lower layer already shows, no deletion of a missing entry, an
opaque mark only where it hides something (overlayfs marks every new directory that is renamed into place).
`read_members` reads it; `make_canonical` then removes from the directory what the layer does not contain, so that the
directory itself can be a lower layer and reads as the same layer again.
"""

# names in a layer are bytes, which pathlib does not hold
# ruff: noqa: PTH101, PTH108, PTH115, PTH123
from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.core.access_lists import ACCESS_LISTS
from envbuild.core.deep_recursion import room_for_deep_paths
from envbuild.core.errors import BuildError, Finding
from envbuild.core.folder_removal import remove_folder
from envbuild.core.text import printable
from envbuild.oci.layers.lower_view import (
    OPAQUE,
    OVERLAY,
    WHITEOUT,
    Dirs,
    LowerView,
    is_opaque,
    is_whiteout,
    list_xattrs,
)
from envbuild.oci.tar import member as m
from envbuild.oci.tar.member import Kind, Member

ENTRY, DELETION, COVER = 0, 1, 2  # an entry of the layer; a whiteout; an opaque mark
CHUNK = 1 << 20
RENAME = (
    "remove it at the end of the step, or rename it: names that begin with .wh. are reserved (OCI image spec, layer.md)"
)
KINDS = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFDIR: Kind.DIR,
    stat.S_IFLNK: Kind.SYMLINK,
    stat.S_IFIFO: Kind.FIFO,
}


@dataclass
class Scan:
    """Content of a layer: `found` (path in the layer, ENTRY/DELETION/COVER, path in the directory), sorted by path in
    the layer; `dropped`: entries of the directory that the layer does not contain; `implied`: directories that are in
    the directory only because of entries below them; `reserved`: entries with the name of a whiteout."""

    root: bytes
    epoch: int | None
    found: list[tuple[bytes, int, bytes]] = field(default_factory=list)
    dropped: list[bytes] = field(default_factory=list)
    implied: list[bytes] = field(default_factory=list)
    reserved: list[bytes] = field(default_factory=list)


def scan(upper: Path, lowers: Sequence[Path], *, epoch: int, keep: Sequence[str] = ()) -> Scan:
    """Compare an upper directory with the layer trees below it (bottom first). Times are clamped to `epoch` (seconds).

    `keep`: absolute paths; if there are any, only they and what is below them belong to the layer, and their parents
    that no lower has. Raises BuildError for entries with the name of a whiteout: as members of a layer they delete
    files of the layers below.
    """
    result = Scan(os.fsencode(upper), epoch)
    kept = tuple(os.fsencode(path).strip(b"/") for path in keep)
    view = LowerView([os.fsencode(path) for path in lowers])
    with room_for_deep_paths():
        _Scanner(result, view, kept).folder(b"", view.dirs(b""))
    if result.reserved:
        raise BuildError.of(
            Finding(
                "the unit leaves a file whose name deletes another one in a layer",
                f"/{printable(os.fsdecode(path))}",
                RENAME,
            )
            for path in sorted(result.reserved)
        )
    result.found.sort()
    return result


def scan_canonical(tree: Path, implied: Sequence[bytes]) -> Scan:
    """Read a tree after `make_canonical`: everything in it is the layer, except the `implied` directories."""
    result = Scan(os.fsencode(tree), None, implied=list(implied))
    hidden = frozenset(implied)
    todo = [b""]
    while todo:
        folder = todo.pop()
        for path, status in list_children(result.root, folder):
            full = result.root + b"/" + path
            if is_whiteout(full, status):
                result.found.append((whiteout_path(path), DELETION, path))
                continue
            if stat.S_ISDIR(status.st_mode):
                todo.append(path)
                if is_opaque(full):
                    result.found.append((path + b"/" + m.OPAQUE, COVER, path))
                if path in hidden:
                    continue
            result.found.append((path, ENTRY, path))
    result.found.sort()
    return result


class _Scanner:
    def __init__(self, result: Scan, view: LowerView, keep: tuple[bytes, ...]) -> None:
        self.result, self.view, self.keep = result, view, keep

    def folder(self, folder: bytes, below: Dirs) -> int:
        """Scan one directory whose visible lower directories are `below`; return how many members it contains."""
        count = 0
        for path, status in list_children(self.result.root, folder):
            position = self.position(path)
            if position == "outside":
                self.result.dropped.append(path)
                continue
            count += self.entry(path, status, below, position == "parent")
        return count

    def position(self, path: bytes) -> str:
        """Return where a path is: inside of the paths to keep, a parent of one, or outside."""
        if not self.keep or any(path == top or path.startswith(top + b"/") for top in self.keep):
            return "inside"
        return "parent" if any(top.startswith(path + b"/") for top in self.keep) else "outside"

    def entry(self, path: bytes, status: os.stat_result, below: Dirs, parent: bool) -> int:
        """Scan one entry and what is below it; return how many members it contains."""
        found, full = self.result.found, self.result.root + b"/" + path
        lower, merged = self.view.find(below, path.rpartition(b"/")[2]) if below else (None, ())
        if is_whiteout(full, status):
            if (lower is None and not merged) or parent:
                self.result.dropped.append(path)
                return 0
            found.append((whiteout_path(path), DELETION, path))
            return 1
        if stat.S_IFMT(status.st_mode) not in KINDS:
            self.result.dropped.append(path)  # sockets and device nodes
            return 0
        if path.rpartition(b"/")[2].startswith(m.WHITEOUT):
            self.result.reserved.append(path)
        if not stat.S_ISDIR(status.st_mode):
            if lower and self.is_unchanged(full, status, *lower):
                self.result.dropped.append(path)
                return 0
            found.append((path, ENTRY, path))
            return 1
        count = 0
        if is_opaque(full):
            if merged:
                found.append((path + b"/" + m.OPAQUE, COVER, path))
                count = 1
            merged = ()
        count += self.folder(path, merged)
        if lower and stat.S_ISDIR(lower[1].st_mode) and (parent or self.is_unchanged(full, status, *lower)):
            (self.result.implied if count else self.result.dropped).append(path)
            return count
        if parent and not count:
            self.result.dropped.append(path)
            return 0
        found.append((path, ENTRY, path))
        return count + 1

    def is_unchanged(self, path: bytes, status: os.stat_result, other: bytes, lower: os.stat_result) -> bool:
        """Return whether an entry of the upper directory shows exactly what the lower one does."""
        directory = stat.S_ISDIR(status.st_mode)
        if (status.st_mode, status.st_uid, status.st_gid) != (lower.st_mode, lower.st_uid, lower.st_gid):
            return False
        if clamped_mtime(status, self.result.epoch) != clamped_mtime(lower, self.result.epoch) or (
            not directory and status.st_size != lower.st_size
        ):
            return False
        if stat.S_ISLNK(status.st_mode):
            return os.readlink(path) == os.readlink(other)
        if list_xattrs(path) != list_xattrs(other):
            return False
        return not stat.S_ISREG(status.st_mode) or has_equal_content(path, other)


def read_members(scan: Scan) -> Iterator[tuple[Member, Path | None]]:
    """Yield the members in order, each with the file that contains its data (None if it has none).

    Hard links lead to the first name.
    """
    first: dict[tuple[int, int], bytes] = {}
    for name, what, path in scan.found:
        if what != ENTRY:
            yield Member(name, Kind.FILE, 0o644), None
            continue
        full = scan.root + b"/" + path
        status = os.lstat(full)
        kind = KINDS[stat.S_IFMT(status.st_mode)]
        link = b""
        if kind is not Kind.DIR and status.st_nlink > 1:
            link = first.setdefault((status.st_dev, status.st_ino), path)
        if link and link != path:
            kind, xattrs = Kind.HARDLINK, {}
        else:
            link = os.readlink(full) if kind is Kind.SYMLINK else b""
            xattrs = {} if kind is Kind.SYMLINK else list_xattrs(full)
        size = status.st_size if kind is Kind.FILE else 0
        entry = Member(
            path,
            kind,
            stat.S_IMODE(status.st_mode),
            status.st_uid,
            status.st_gid,
            clamped_mtime(status, scan.epoch),
            size,
            link,
            xattrs=xattrs,
        )
        yield entry, Path(os.fsdecode(full)) if kind is Kind.FILE else None


def make_canonical(scan: Scan) -> None:
    """Make the directory equal to its layer: remove anything else, clamp times, remove overlay's marks and ACLs.

    Can be repeated.
    """
    entries = [path for path, what, _ in scan.found if what == ENTRY]
    times = {}  # before removals change them
    for path in [*entries, *scan.implied]:
        times[path] = clamped_mtime(os.lstat(scan.root + b"/" + path), scan.epoch)
    for path in scan.dropped:
        full = scan.root + b"/" + path
        if stat.S_ISDIR(os.lstat(full).st_mode):
            remove_folder(Path(os.fsdecode(full)))
        else:
            os.unlink(full)
    covers = {path for _, what, path in scan.found if what == COVER}
    deletions = [path for _, what, path in scan.found if what == DELETION]
    for path in deletions:
        os.utime(scan.root + b"/" + path, (0, 0), follow_symlinks=False)
    for path, clamped in times.items():
        full = scan.root + b"/" + path
        if not stat.S_ISLNK(os.lstat(full).st_mode):
            remove_marks(full, keep_opaque=path in covers)
        os.utime(full, (clamped, clamped), follow_symlinks=False)
    remove_marks(scan.root, keep_opaque=False)
    os.chmod(scan.root, 0o755)
    os.utime(scan.root, (0, 0))


def remove_marks(path: bytes, *, keep_opaque: bool) -> None:
    """Remove what a layer does not contain: overlay's attributes, but for the opaque mark if `keep_opaque`, and access
    control lists. A default one of a folder would decide the modes of what a later unit makes in it, here alone."""
    for name in os.listxattr(path, follow_symlinks=False):
        marks = name.startswith(OVERLAY) and name != WHITEOUT and not (keep_opaque and name == OPAQUE)
        if marks or name in ACCESS_LISTS:
            os.removexattr(path, name, follow_symlinks=False)


def list_children(root: bytes, folder: bytes) -> list[tuple[bytes, os.stat_result]]:
    """Return the entries of a directory, sorted: (path relative to `root`, lstat)."""
    with os.scandir(root + b"/" + folder if folder else root) as entries:
        prefix = folder + b"/" if folder else b""
        return sorted((prefix + entry.name, entry.stat(follow_symlinks=False)) for entry in entries)


def whiteout_path(path: bytes) -> bytes:
    """Return the path of the whiteout of a path."""
    parent, slash, name = path.rpartition(b"/")
    return parent + slash + m.WHITEOUT + name


def clamped_mtime(status: os.stat_result, epoch: int | None) -> int:
    """Return the modification time in whole seconds, no later than `epoch`."""
    whole = status.st_mtime_ns // 1_000_000_000
    return whole if epoch is None else min(whole, epoch)


def has_equal_content(path: bytes, other: bytes) -> bool:
    """Return whether two files have the same content."""
    with open(path, "rb") as one, open(other, "rb") as two:
        while True:
            first, second = one.read(CHUNK), two.read(CHUNK)
            if first != second:
                return False
            if not first:
                return True
