"""Layer tars of other builders, unpacked.

`apply_tar` unpacks into the form of an overlay's upper directory, so that a layer meets the same clean list and packer
as envbuild's own (`envbuild.oci.layers.layer.make_layer`): deletions become character devices 0:0 and opaque folders
get ``user.overlay.opaque`` (`envbuild.oci.layers.lower_view`). Several tars, bottom first, may be unpacked into one
tree: they become one layer. `apply_layers` unpacks all layers of an image into one plain tree. Formats: OCI image spec,
layer.md; POSIX.1-2017, pax(1).
"""

# Names are bytes here, which pathlib does not take.
# ruff: noqa: PTH101, PTH102, PTH108, PTH115, PTH118, PTH123, PTH211

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from io import BufferedWriter
from pathlib import Path
from typing import IO

from envbuild.core.errors import EngineError
from envbuild.oci.layers.changeset import Changeset, Kind
from envbuild.oci.layers.lower_view import OPAQUE, OVERLAY, LowerView, list_xattrs
from envbuild.oci.tar import member as m
from envbuild.oci.tar.chunks import Readable
from envbuild.oci.tar.decompress import reading, sound
from envbuild.oci.tar.fields import show
from envbuild.oci.tar.member import Member

ROOT = Member(b"", m.Kind.DIR, 0o755)


def apply_tar(file: IO[bytes], tree: Path, lowers: Sequence[Path]) -> None:
    """Unpack one layer tar over what is in `tree`, with owners, modes, times (whole seconds) and extended attributes.

    `lowers`: trees below, bottom first; folders that the tar implies get the attributes they have there. Device nodes
    are left out. Must run as root, or root of a user namespace. Raises OSError, InputError for a tar that is damaged or
    leaves its folder, EngineError for owners that cannot be had here.
    """
    with sound("a layer"):
        _Upper(os.fsencode(tree), LowerView([os.fsencode(path) for path in lowers])).apply(file)


def apply_layers(blobs: Sequence[Path], tree: Path, tell: Callable[[str], object] = lambda text: None) -> None:
    """Unpack the layers of an image (compressed or not, bottom first) over what is in the folder `tree`, so that it
    shows what a container of the image would see.

    `tell` gets a line for each. As `apply_tar` otherwise.
    """
    for number, blob in enumerate(blobs, 1):
        tell(f"layer {number} of {len(blobs)}")
        with sound(f"layer {number} ({blob.name})"), reading(blob) as stream:
            _Whole(os.fsencode(tree)).apply(stream)


class _Whole(Changeset):
    """A folder on disk that has nothing below it: what a layer deletes is deleted."""

    def __init__(self, root: bytes) -> None:
        super().__init__()
        self.root = root
        self.times: dict[bytes, float] = {}  # of folders, to be set when everything in them is there
        self.file: BufferedWriter | None = None  # the one that data goes to
        self.member, self.path, self.hole = ROOT, b"", False

    def kind(self, path: bytes) -> Kind | None:
        try:
            mode = os.lstat(self.place(path)).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Kind.FOLDER if stat.S_ISDIR(mode) else Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER

    def target(self, path: bytes) -> bytes:
        return os.readlink(self.place(path))

    def names(self, path: bytes) -> list[bytes]:
        with os.scandir(self.place(path)) as found:
            return [entry.name for entry in found]

    def seen(self, path: bytes) -> None:
        # What is added or removed changes a folder's time; who wants it changed has an entry that says so.
        self.times.setdefault(path, os.lstat(self.place(path)).st_mtime)

    def make(self, path: bytes) -> None:
        os.mkdir(self.place(path), 0o755)
        self.times[path] = 0

    def delete(self, path: bytes, kind: Kind) -> None:
        if kind is not Kind.FOLDER:
            os.unlink(self.place(path))
            return
        shutil.rmtree(self.place(path))
        self.times = {
            name: mtime for name, mtime in self.times.items() if name != path and not name.startswith(path + b"/")
        }

    def apply(self, stream: Readable) -> None:
        try:
            super().apply(stream)
        finally:
            if self.file:
                self.file.close()

    def add(self, member: Member, path: bytes) -> None:
        place, kind = self.place(path), member.kind
        if kind is m.Kind.DIR:
            if self.kind(path) is not Kind.FOLDER:
                self.remove(path)
                os.mkdir(place)
            self.attributes(member, place)
            self.times[path] = member.mtime
            return
        if kind is m.Kind.HARDLINK:
            os.link(self.place(self.source(member, path)), place, follow_symlinks=False)
            return
        self.remove(path)  # not written to: it may have other names
        if kind is m.Kind.FILE:
            self.file, self.member, self.path = open(place, "wb"), member, place  # noqa: SIM115  # until `end`
            return
        if kind is m.Kind.SYMLINK:
            os.symlink(member.link, place)
        elif kind is m.Kind.FIFO:
            os.mkfifo(place)
        else:
            return
        self.attributes(member, place)
        os.utime(place, (member.mtime, member.mtime), follow_symlinks=False)

    def data(self, chunk: bytes) -> None:
        if self.file:
            self.file.write(chunk)

    def zeros(self, count: int) -> None:
        if self.file:
            self.file.seek(count, os.SEEK_CUR)
            self.hole = True

    def end(self) -> None:
        if not self.file:
            return
        if self.hole:
            self.file.truncate()  # where the position is: a hole at the end is not there yet
        self.file.close()
        self.file, self.hole = None, False
        self.attributes(self.member, self.path)
        os.utime(self.path, (self.member.mtime, self.member.mtime))

    def attributes(self, member: Member, place: bytes) -> None:
        try:
            os.chown(place, member.uid, member.gid, follow_symlinks=False)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise EngineError(
                f"{show(member.path)} belongs to user {member.uid} and group {member.gid}, which are more than the ids "
                "that this machine gives an unprivileged user",
                hint="build as root: sudo envbuild make NAME",
            ) from None
        if member.kind is m.Kind.SYMLINK:
            return
        os.chmod(place, member.mode)
        for name, value in member.xattrs.items():
            text = os.fsdecode(name)
            if text == "security.capability" or (text.startswith("user.") and not text.startswith(OVERLAY)):
                os.setxattr(place, name, value)

    def place(self, path: bytes) -> bytes:
        return os.path.join(self.root, path) if path else self.root

    def close(self) -> None:
        for path, mtime in sorted(self.times.items(), reverse=True):
            os.utime(self.place(path), (int(mtime), int(mtime)))


class _Upper(_Whole):
    """A folder on disk that stands on others: what a layer deletes there is marked."""

    follow = False  # what a link leads to may be in a tree below

    def __init__(self, root: bytes, below: LowerView) -> None:
        super().__init__(root)
        self.below = below

    def make(self, path: bytes) -> None:
        super().make(path)
        place, found = self.place(path), self.below.entry(path)
        if found and stat.S_ISDIR(found[1].st_mode):
            real, status = found
            os.chown(place, status.st_uid, status.st_gid)
            os.chmod(place, stat.S_IMODE(status.st_mode))
            for name, value in list_xattrs(real).items():
                os.setxattr(place, name, value)
            self.times[path] = status.st_mtime

    def add(self, member: Member, path: bytes) -> None:
        hides = member.kind is m.Kind.DIR and self.kind(path) in (Kind.LINK, Kind.OTHER)
        super().add(member, path)
        if hides:  # a folder in the place of a deletion or a file shows nothing of the layers below
            os.setxattr(self.place(path), OPAQUE, b"y")

    def hide(self, path: bytes) -> None:
        super().hide(path)
        if path not in self.written:
            os.mknod(self.place(path), stat.S_IFCHR, os.makedev(0, 0))

    def cover(self, folder: bytes) -> None:
        for name in self.names(folder):
            super().hide(folder + b"/" + name if folder else name)
        os.setxattr(self.place(folder), OPAQUE, b"y")
