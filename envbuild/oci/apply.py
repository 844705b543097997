"""Layer tars of other builders, unpacked into the form of an overlay's upper directory.

So they meet the same clean list and packer as envbuild's own layers (`envbuild.oci.layer.make_layer`). Deletions become
character devices 0:0 and opaque folders get ``user.overlay.opaque`` (`envbuild.oci.lower`). Several tars, bottom first,
may be unpacked into one tree: they become one layer. Formats: OCI image spec, layer.md; POSIX.1-2017, pax(1).
"""

# Names are bytes here, which pathlib does not take.
# ruff: noqa: PTH101, PTH102, PTH108, PTH112, PTH114, PTH118, PTH123, PTH211

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from envbuild.errors import EngineError
from envbuild.oci import member as m
from envbuild.oci.lower import OPAQUE, LowerView, list_xattrs

CHUNK = 1 << 20
XATTR = "SCHILY.xattr."


def apply_tar(file: IO[bytes], tree: Path, lowers: Sequence[Path]) -> None:
    """Unpack one layer tar over what is in `tree`, with owners, modes, times (whole seconds) and extended attributes.

    `lowers`: trees below, bottom first; folders that the tar implies get the attributes they have there. Device nodes
    are left out. Must run as root, or root of a user namespace. Raises OSError, EngineError for a tar that leaves its
    folder.
    """
    applier = _Applier(os.fsencode(tree), LowerView([os.fsencode(path) for path in lowers]))
    with tarfile.open(fileobj=file, mode="r|*", encoding="utf-8", errors="surrogateescape") as tar:
        for entry in tar:
            applier.entry(tar, entry)
    applier.finish()


class _Applier:
    def __init__(self, root: bytes, below: LowerView) -> None:
        self.root, self.below = root, below
        self.times: dict[bytes, float] = {}
        self.real: set[bytes] = {b""}  # folders of the tree, reached through no link
        self.written: set[bytes] = set()

    def entry(self, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
        path = relative(entry.name)
        if not path:
            return
        parent, _, name = path.rpartition(b"/")
        self.folder(parent)
        if name == m.OPAQUE:
            self.opaque(parent)
        elif name.startswith(m.WHITEOUT):
            hidden = os.path.join(parent, name[len(m.WHITEOUT) :])
            self.remove(hidden)
            os.mknod(self.place(hidden), stat.S_IFCHR, os.makedev(0, 0))
        else:
            self.add(tar, entry, path)
            self.written.add(path)

    def add(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, path: bytes) -> None:
        place = self.place(path)
        if entry.isdir():
            if not is_dir(place):
                hides = os.path.lexists(place)
                self.remove(path)
                os.mkdir(place)
                if hides:  # a folder in the place of a deletion or a file shows nothing of the layers below
                    os.setxattr(place, OPAQUE, b"y")
        else:
            self.remove(path)
            if entry.islnk():
                os.link(self.place(relative(entry.linkname)), place, follow_symlinks=False)
                return
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
        os.chown(place, entry.uid, entry.gid, follow_symlinks=False)
        if not entry.issym():
            os.chmod(place, entry.mode & 0o7777)
            for name, value in entry.pax_headers.items():
                attribute = name.removeprefix(XATTR)
                if attribute != name and (attribute == "security.capability" or attribute.startswith("user.")):
                    os.setxattr(place, os.fsencode(attribute), value.encode("utf-8", "surrogateescape"))
        if entry.isdir():
            self.times[path] = entry.mtime  # when everything in it is there
        else:
            os.utime(place, (int(entry.mtime), int(entry.mtime)), follow_symlinks=False)

    def folder(self, path: bytes) -> None:
        """See that the folder `path` is there, and no link."""
        if path in self.real:
            return
        self.folder(path.rpartition(b"/")[0])
        self.real.add(path)
        place = self.place(path)
        if is_dir(place):
            return
        if os.path.lexists(place):
            raise EngineError(f"a layer puts files below {os.fsdecode(path)}, which is no folder in it")
        os.mkdir(place, 0o755)
        found = self.below.entry(path)
        if found and stat.S_ISDIR(found[1].st_mode):
            real, status = found
            os.chown(place, status.st_uid, status.st_gid)
            os.chmod(place, stat.S_IMODE(status.st_mode))
            for name, value in list_xattrs(real).items():
                os.setxattr(place, name, value)
            self.times[path] = status.st_mtime

    def opaque(self, path: bytes) -> None:
        """Hide what the layers below, and tars before this one, have in a folder."""
        with os.scandir(self.place(path)) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            child = os.path.join(path, name)
            if not any(item == child or item.startswith(child + b"/") for item in self.written):
                self.remove(child)
        os.setxattr(self.place(path), OPAQUE, b"y")

    def remove(self, path: bytes) -> None:
        place = self.place(path)
        if is_dir(place):
            shutil.rmtree(place)
            gone = {name for name in self.real | self.times.keys() if name == path or name.startswith(path + b"/")}
            self.real -= gone
            self.times = {name: mtime for name, mtime in self.times.items() if name not in gone}
        elif os.path.lexists(place):
            os.unlink(place)

    def place(self, path: bytes) -> bytes:
        return os.path.join(self.root, path) if path else self.root

    def finish(self) -> None:
        for path, mtime in sorted(self.times.items(), reverse=True):
            os.utime(self.place(path), (int(mtime), int(mtime)))


def relative(name: str) -> bytes:
    """A member's name as a path without ``./`` and slashes at its ends. Raises EngineError for ``..``."""
    parts = [part for part in os.fsencode(name).split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise EngineError(f"a layer holds the path {name!r}")
    return b"/".join(parts)


def is_dir(place: bytes) -> bool:
    return os.path.isdir(place) and not os.path.islink(place)
