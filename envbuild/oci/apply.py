"""Layer tars of other builders, unpacked.

`apply_tar` unpacks into the form of an overlay's upper directory, so that a layer meets the same clean list and packer
as envbuild's own (`envbuild.oci.layer.make_layer`): deletions become character devices 0:0 and opaque folders get
``user.overlay.opaque`` (`envbuild.oci.lower`). Several tars, bottom first, may be unpacked into one tree: they become
one layer. `apply_layers` unpacks all layers of an image into one plain tree. Formats: OCI image spec, layer.md;
POSIX.1-2017, pax(1).
"""

# Names are bytes here, which pathlib does not take.
# ruff: noqa: PTH101, PTH102, PTH108, PTH115, PTH118, PTH123, PTH211

from __future__ import annotations

import errno
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from envbuild.errors import EngineError
from envbuild.oci.changeset import Changeset, Kind
from envbuild.oci.decompress import reading, sound
from envbuild.oci.lower import OPAQUE, OVERLAY, LowerView, list_xattrs

CHUNK = 1 << 20
XATTR = "SCHILY.xattr."


def apply_tar(file: IO[bytes], tree: Path, lowers: Sequence[Path]) -> None:
    """Unpack one layer tar over what is in `tree`, with owners, modes, times (whole seconds) and extended attributes.

    `lowers`: trees below, bottom first; folders that the tar implies get the attributes they have there. Device nodes
    are left out. Must run as root, or root of a user namespace. Raises OSError, EngineError for a tar that leaves its
    folder.
    """
    with sound("a layer"):
        upper = _Upper(os.fsencode(tree), LowerView([os.fsencode(path) for path in lowers]))
        upper.apply(file)
        upper.finish()


def apply_layers(blobs: Sequence[Path], tree: Path, tell: Callable[[str], object] = lambda text: None) -> None:
    """Unpack the layers of an image (compressed or not, bottom first) over what is in the folder `tree`, so that it
    shows what a container of the image would see.

    `tell` gets a line for each. As `apply_tar` otherwise. Raises OSError, EngineError, InputError for a damaged layer.
    """
    for number, blob in enumerate(blobs, 1):
        tell(f"layer {number} of {len(blobs)}")
        with sound(f"layer {number} ({blob.name})"), reading(blob) as stream:
            whole = _Whole(os.fsencode(tree))
            whole.apply(stream)
            whole.finish()


class _Whole(Changeset):
    """A folder on disk that has nothing below it: what a layer deletes is deleted."""

    def __init__(self, root: bytes) -> None:
        super().__init__()
        self.root = root
        self.times: dict[bytes, float] = {}  # of folders, to be set when everything in them is there

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

    def add(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, path: bytes) -> None:
        place = self.place(path)
        if entry.isdir():
            if self.kind(path) is not Kind.FOLDER:
                self.remove(path)
                os.mkdir(place)
        else:
            if entry.islnk():
                os.link(self.place(self.source(entry, path)), place, follow_symlinks=False)
                return
            self.remove(path)  # not written to: it may have other names
            if entry.issym():
                os.symlink(os.fsencode(entry.linkname), place)
            elif entry.isfifo():
                os.mkfifo(place)
            elif entry.isreg():
                content = tar.extractfile(entry)
                with open(place, "wb") as file:
                    while content and (chunk := content.read(CHUNK)):
                        file.write(chunk)
            else:
                return
        self.attributes(entry, place)
        if entry.isdir():
            self.times[path] = entry.mtime
        else:
            os.utime(place, (int(entry.mtime), int(entry.mtime)), follow_symlinks=False)

    def attributes(self, entry: tarfile.TarInfo, place: bytes) -> None:
        try:
            os.chown(place, entry.uid, entry.gid, follow_symlinks=False)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise EngineError(
                f"{entry.name!r} belongs to user {entry.uid} and group {entry.gid}, which are more than the ids that "
                "this machine gives an unprivileged user",
                hint="build as root: sudo envbuild make NAME",
            ) from None
        if entry.issym():
            return
        os.chmod(place, entry.mode & 0o7777)
        for name, value in entry.pax_headers.items():
            attribute = name.removeprefix(XATTR)
            known = attribute == "security.capability" or attribute.startswith("user.")
            if attribute != name and known and not attribute.startswith(OVERLAY):
                os.setxattr(place, os.fsencode(attribute), value.encode("utf-8", "surrogateescape"))

    def place(self, path: bytes) -> bytes:
        return os.path.join(self.root, path) if path else self.root

    def finish(self) -> None:
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

    def add(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, path: bytes) -> None:
        hides = entry.isdir() and self.kind(path) in (Kind.LINK, Kind.OTHER)
        super().add(tar, entry, path)
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
