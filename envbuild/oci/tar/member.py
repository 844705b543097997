"""Members of a layer, and the protocol of what consumes them.

A layer is a sequence of members in byte order of their paths, as the tar of an OCI layer holds them: deletions are
empty regular files named ``.wh.NAME``, an opaque directory holds ``.wh..wh..opq`` (OCI image spec, layer.md,
"Whiteouts"). The canonical tar (`envbuild.oci.layers.layer`) and the squashfs pack (`envbuild.squashfs.pack.writer`)
are both sinks of members, so that a layer is read once and hashed and compressed in the same pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

WHITEOUT = b".wh."
OPAQUE = b".wh..wh..opq"
AUFS = b".wh..wh."  # of aufs: its own files begin so, such as .wh..wh.plnk; they are never content


class Kind(StrEnum):
    """Type of a member."""

    FILE = "file"
    DIR = "dir"
    SYMLINK = "symlink"
    HARDLINK = "hardlink"
    FIFO = "fifo"
    CHAR = "char"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Member:
    """Entry of a layer.

    `path` is relative, without a leading or trailing slash; the root directory is ``b""``. `mode` holds permission
    bits only (0..0o7777). `mtime` is in whole seconds. `size` is the length of the data in bytes (0 for everything but
    files). `link` is the target of a symlink, or the path (relative, as `path`) of the first name of a hard link.
    `device` is (major, minor). `xattrs` holds full names (``security.capability``).
    """

    path: bytes
    kind: Kind
    mode: int
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    size: int = 0
    link: bytes = b""
    device: tuple[int, int] = (0, 0)
    xattrs: Mapping[bytes, bytes] = field(default_factory=dict)


SET_IDS, CAPABILITY = 0o6000, b"security.capability"


class Rights(NamedTuple):
    """Rights of a program: its permissions, owners and capabilities (None: it has none)."""

    mode: int
    uid: int
    gid: int
    capability: bytes | None


def has_other_rights(link: Rights, file: Rights) -> bool:
    """Return whether the header of a hard link states other rights of a program than its file has: Docker and podman
    apply them to the file, others do not. The header of a link need not have attributes."""
    if (link.mode ^ file.mode) & SET_IDS or link.capability not in (None, file.capability):
        return True
    privileged = file.mode & SET_IDS or file.capability is not None
    return bool(privileged) and (link.uid, link.gid) != (file.uid, file.gid)


class Sink(Protocol):
    """Consumer of the members of one layer, in order.

    `begin`, then `data` and `zeros` any number of times, then `end`; at last `close`.

    `zeros` is a run of zero bytes of the file, a hole of a sparse one; it counts as data.
    """

    def begin(self, member: Member) -> None: ...

    def data(self, chunk: bytes) -> None: ...

    def zeros(self, count: int) -> None: ...

    def end(self) -> None: ...

    def close(self) -> None: ...
