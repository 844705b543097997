"""Unpacks all layers of a third-party image into one plain tree. Formats: OCI image spec, layer.md; POSIX.1-2017,
pax(1).
"""

# Names are bytes here, which pathlib does not take.
# ruff: noqa: PTH101, PTH102, PTH108, PTH115, PTH118, PTH123, PTH211

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import BufferedWriter
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.folder_removal import remove_folder
from envbuild.oci.layers.changeset import Changeset, EntryKind
from envbuild.oci.layers.lower_view import OVERLAY, list_xattrs
from envbuild.oci.tar import member as m
from envbuild.oci.tar.chunks import Readable
from envbuild.oci.tar.decompress import convert_layer_errors
from envbuild.oci.tar.fields import LayerError, quote_name
from envbuild.oci.tar.member import Member
from envbuild.oci.tar.unpack_limit import HoleCount, LimitedContent, open_blob_file

ROOT = Member(b"", m.Kind.DIR, 0o755)


def apply_layers(blobs: Sequence[Path], tree: Path, progress: Callable[[str], object] = lambda text: None) -> None:
    """Unpack the layers of an image (compressed or not, bottom first) over the content of the folder `tree`, so that it
    shows what a container of the image would see.

    `progress` is called with a line for each layer. As `apply_tar` otherwise.
    """
    holes = HoleCount()

    def count(stream: LimitedContent, size: int) -> None:
        stream.add(size)
        holes.add(size)

    for number, blob in enumerate(blobs, 1):
        progress(f"layer {number} of {len(blobs)}")
        with convert_layer_errors(f"layer {number} ({blob.name})"), open_blob_file(blob) as stream:
            PlainTree(os.fsencode(tree), partial(count, stream)).apply(stream)


class PlainTree(Changeset):
    """Folder on disk without layers below it: what a layer deletes is deleted. `count` is called with the bytes of each
    hole: no byte of the tar is one of them, and the layer of the folder has them all."""

    def __init__(self, root: bytes, count: Callable[[int], object] = lambda count: None) -> None:
        super().__init__()
        self.root, self.count = root, count
        self.times: dict[bytes, float] = {}  # of folders, to be set when they are complete
        self.file: BufferedWriter | None = None  # the one that data goes to
        self.member, self.path, self.hole = ROOT, b"", False

    def kind(self, path: bytes) -> EntryKind | None:
        try:
            mode = os.lstat(self.full_path(path)).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        return EntryKind.FOLDER if stat.S_ISDIR(mode) else EntryKind.LINK if stat.S_ISLNK(mode) else EntryKind.OTHER

    def target(self, path: bytes) -> bytes:
        return os.readlink(self.full_path(path))

    def names(self, path: bytes) -> list[bytes]:
        with os.scandir(self.full_path(path)) as found:
            return [entry.name for entry in found]

    def note_change(self, path: bytes) -> None:
        # Adding or removing an entry changes a folder's time; the layer has an entry for a folder whose time changes.
        self.times.setdefault(path, os.lstat(self.full_path(path)).st_mtime)

    def make(self, path: bytes) -> None:
        os.mkdir(self.full_path(path))
        self.reset(path)

    def reset(self, path: bytes) -> None:
        full = self.full_path(path)
        os.chown(full, 0, 0)  # not those of a setgid folder above
        os.chmod(full, 0o755)
        self.set_xattrs(full, {})
        self.times[path] = 0

    def delete(self, path: bytes, kind: EntryKind) -> None:
        if kind is not EntryKind.FOLDER:
            os.unlink(self.full_path(path))
        else:
            remove_folder(Path(os.fsdecode(self.full_path(path))))

    def apply(self, stream: Readable) -> None:
        try:
            super().apply(stream)
        finally:
            if self.file:
                self.file.close()

    def add(self, member: Member, path: bytes) -> None:
        full, kind = self.full_path(path), member.kind
        if kind is m.Kind.DIR:
            if self.kind(path) is not EntryKind.FOLDER:
                self.remove(path)
                os.mkdir(full)
            self.set_attributes(member, full)
            self.times[path] = member.mtime
            return
        if kind is m.Kind.HARDLINK:
            self.link(member, self.full_path(self.link_source(member, path)), full)
            return
        self.remove(path)  # not written to: it may have other names
        if kind is m.Kind.FILE:
            self.file, self.member, self.path = open(full, "wb"), member, full  # noqa: SIM115  # until `end`
            return
        if kind is m.Kind.SYMLINK:
            os.symlink(member.link, full)
        elif kind is m.Kind.FIFO:
            os.mkfifo(full)
        else:
            return
        self.set_attributes(member, full)
        os.utime(full, (member.mtime, member.mtime), follow_symlinks=False)

    def link(self, member: Member, source: bytes, full: bytes) -> None:
        found = os.lstat(source)
        attributes = {} if stat.S_ISLNK(found.st_mode) else list_xattrs(source)
        own = m.Rights(found.st_mode, found.st_uid, found.st_gid, attributes.get(m.CAPABILITY))
        if m.has_other_rights(m.Rights(member.mode, member.uid, member.gid, member.xattrs.get(m.CAPABILITY)), own):
            raise LayerError(f"{quote_name(member.path)} states other rights than the file whose other name it is")
        try:
            os.link(source, full, follow_symlinks=False)
        except OSError as error:
            if error.errno != errno.EMLINK:
                raise
            raise LayerError(f"{quote_name(member.link)} has more names than the file system allows") from None

    def data(self, chunk: bytes) -> None:
        if self.file:
            self.file.write(chunk)

    def zeros(self, count: int) -> None:
        self.count(count)
        if self.file:
            self.file.seek(count, os.SEEK_CUR)
            self.hole = True

    def end(self) -> None:
        if not self.file:
            return
        if self.hole:
            self.file.truncate()  # at the current position: a hole at the end is not part of the file yet
        self.file.close()
        self.file, self.hole = None, False
        self.set_attributes(self.member, self.path)
        os.utime(self.path, (self.member.mtime, self.member.mtime))

    def set_attributes(self, member: Member, full: bytes) -> None:
        """Set owner, mode and extended attributes. Raises EngineError for an owner outside the user's ids."""
        try:
            os.chown(full, member.uid, member.gid, follow_symlinks=False)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise EngineError(
                f"{quote_name(member.path)} belongs to user {member.uid} and group {member.gid}, which exceed "
                "the ids of an unprivileged user on this machine",
                hint="build as root, in a store of root: sudo ENVBUILD_STORE=/a/folder envbuild make NAME",
            ) from None
        if member.kind is m.Kind.SYMLINK:
            return
        os.chmod(full, member.mode)
        if member.xattrs or member.kind is m.Kind.DIR:
            self.set_xattrs(full, member.xattrs)

    def set_xattrs(self, full: bytes, xattrs: Mapping[bytes, bytes]) -> None:
        """Give a file exactly those of `xattrs` that a layer may have."""
        for name in list_xattrs(full).keys() - xattrs.keys():
            os.removexattr(full, name)
        for name, value in xattrs.items():
            text = os.fsdecode(name)
            if text == "security.capability" or (text.startswith("user.") and not text.startswith(OVERLAY)):
                try:
                    os.setxattr(full, name, value)
                except OSError as error:
                    if not is_refused(error, full):
                        raise
                    raise LayerError(
                        f"the attribute {quote_name(name)} of a file has a value that the kernel refuses"
                    ) from None

    def full_path(self, path: bytes) -> bytes:
        return os.path.join(self.root, path) if path else self.root

    def close(self) -> None:
        folders = {b"": True}
        for path, mtime in self.times.items():
            if self.is_folder(path, folders):
                os.utime(self.full_path(path), (int(mtime), int(mtime)))

    def is_folder(self, path: bytes, known: dict[bytes, bool]) -> bool:
        """Return whether a path leads through no link to a folder: it may have been deleted, and replaced by a link."""
        missing = []
        while (found := known.get(path)) is None:
            missing.append(path)
            path = path.rpartition(b"/")[0]
        for path in reversed(missing):
            found = known[path] = found and self.kind(path) is EntryKind.FOLDER
        return found


def is_refused(error: OSError, full: bytes) -> bool:
    """Return whether the attribute itself was refused, and not by a full disk: ext4 and btrfs answer "no space"
    for more attributes than a file may have, and only files and folders may have those of users (xattr(7))."""
    if error.errno == errno.ENOSPC:
        return os.statvfs(full).f_bavail > 0
    fifo = error.errno == errno.EPERM and stat.S_ISFIFO(os.lstat(full).st_mode)
    return fifo or error.errno in (errno.EINVAL, errno.ERANGE, errno.E2BIG)
