"""A layer's tar, read once from front to back: its headers are understood, its data is handed on as it came.

Formats: POSIX.1-2017, pax(1), "ustar Interchange Format" and "pax Interchange Format"; GNU tar manual, "Basic Tar
Format" and "Storing Sparse Files"; the tar of Unix version 7. What members mean is in the OCI image spec, layer.md.

A layer may come from anybody. Nothing here is larger than what has really been read: lengths that a header claims are
compared with limits before anything is kept, and data goes to the sink in the pieces in which it came. Where programs
disagree about a form, it is refused unless Go's archive/tar and GNU tar both read it (Docker and buildah are written
with the first, and pack layers with it).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import cast

from envbuild.oci.tar import sparse as tarsparse
from envbuild.oci.tar.chunks import Pieces, Readable
from envbuild.oci.tar.fields import (
    NAME_MOST,
    PATH_MOST,
    LayerError,
    Record,
    decimal,
    number,
    path,
    records,
    seconds,
    show,
    xattrs,
)
from envbuild.oci.tar.header import (
    FILE,
    GNU_SPARSE,
    KINDS,
    NO_DEVICE,
    OLD_FILE,
    check_numbers,
    identity,
    link_target,
    read_device,
    read_names,
    read_owner,
)
from envbuild.oci.tar.member import Kind, Member, Sink

__all__ = ["LayerError", "Readable", "read_tar"]

BLOCK = 512
EXTENDED_MOST = 1 << 20  # bytes of one extended header or long name, as in Go's archive/tar
GLOBALS_MOST, GLOBAL_MOST = 100, 1000  # global records, and bytes of each: every member costs their number again
HOLES_MOST = 1 << 42  # bytes of holes in all sparse files of a layer: a packed hole takes memory too, 4 bytes a block
ADLER = 65521  # zlib's adler32 is 1 + the sum of the bytes modulo this, in its lower half (RFC 1950)
KEPT = 1024  # owners and folders that are remembered
ZEROS = bytes(BLOCK)
GNU = b"ustar  \0"

# types of headers that are no members
EXTENDED, SOLARIS, GLOBAL, LONG_NAME, LONG_LINK, LABEL = b"xXgLKV"
BACKUPS = frozenset(b"DMN")  # of GNU tar: the names in a folder, the rest of a file of another volume, renamings
NOT_GLOBAL = frozenset({b"path", b"linkpath", b"size"})

NONE: Mapping[bytes, bytes] = {}


def read_tar(stream: Readable, sink: Sink) -> int:
    """Push the members of the tar that `stream` gives into `sink` (which is not closed), and read it to its end.

    Returns the number of bytes read. Raises LayerError for everything that is no sound tar of a layer; what `stream`
    and `sink` raise passes through.
    """
    source = Pieces(stream)
    _Reader(source, sink).run()
    return source.before + source.at


class _Reader:
    """Reads headers. `local`, `long_name`, `long_link`: what the headers before a member say about it."""

    def __init__(self, source: Pieces, sink: Sink) -> None:
        self.source, self.sink = source, sink
        self.data = cast("Callable[[memoryview], None]", sink.data)
        self.globals: dict[bytes, bytes] = {}
        self.local: list[Record] | None = None
        self.long_name: bytes | None = None
        self.long_link: bytes | None = None
        self.holes = 0
        self.owners: dict[bytes, tuple[int, int, int]] = {}
        self.folders: dict[bytes, bytes] = {}

    def run(self) -> None:
        from isal.isal_zlib import adler32  # sums a header at a tenth of what Python needs

        source = self.source
        while True:
            at = source.at
            head = source.piece[at : at + BLOCK]
            if len(head) == BLOCK:
                source.at = at + BLOCK
            else:
                head = source.upto(BLOCK)
                if not head:
                    break
                if len(head) < BLOCK:
                    raise LayerError("it ends in the middle of a header")
            if head == ZEROS:
                self.rest()
                break
            # The sum counts its own field as spaces.
            total = (adler32(head[156:], adler32(head[:148])) & 0xFFFF) - 1 + 8 * 32
            try:
                wrong = (total - number(head[148:155], "sum")) % ADLER
            except LayerError:
                wrong = True
            if wrong:
                self.sum(head)
            kind = head[156]
            if kind in KINDS:
                self.member(head, kind)
            else:
                self.other(head, kind)
        if self.local is not None or self.long_name is not None or self.long_link is not None:
            raise LayerError("it ends after an extended header")

    def sum(self, head: bytes) -> None:
        """Raise LayerError unless the sum of a header is right in a form that is rare: without a terminator, or of
        signed bytes, as some old programs wrote it (POSIX.1-2017 has unsigned ones)."""
        rest = head[:148] + head[156:]
        signed = sum(value - 256 if value > 127 else value for value in rest)
        with contextlib.suppress(LayerError):
            if number(head[148:156], "sum") - 8 * 32 in (sum(rest), signed):
                return
        where = self.source.before + self.source.at - BLOCK
        raise LayerError(f"its header at byte {where} is damaged, or it is no tar")

    def other(self, head: bytes, kind: int) -> None:
        """A header of a type that is rare, or that says something about the next member."""
        if kind in (EXTENDED, SOLARIS):
            if self.local is not None:
                raise LayerError("a member has two extended headers")
            self.local = records(self.extended(head))
        elif kind == GLOBAL:
            for key, value in records(self.extended(head)):
                if key in NOT_GLOBAL or key.startswith(tarsparse.SPARSE):
                    raise LayerError(f"it gives all its members one {show(key)}")
                self.globals[key] = value
                if len(self.globals) > GLOBALS_MOST or len(value) > GLOBAL_MOST:
                    raise LayerError(f"its global headers hold more than {GLOBALS_MOST} short records")
        elif kind == LONG_NAME:
            self.long_name = self.extended(head).partition(b"\0")[0]
        elif kind == LONG_LINK:
            self.long_link = self.extended(head).partition(b"\0")[0]
        elif kind == LABEL:  # a name of the archive, and no member
            if self.local is not None or self.long_name is not None or number(head[124:136], "size"):
                raise LayerError("its volume label is damaged")
        elif kind in BACKUPS:
            raise LayerError("it is a backup or a part of one (tar --incremental, --multi-volume), and no layer")
        elif kind == GNU_SPARSE and head[257:265] != GNU:
            raise LayerError("it holds a sparse file in a form that envbuild does not know")
        else:  # POSIX.1-2017: what is not known is a regular file
            self.member(head, kind)

    def extended(self, head: bytes) -> bytes:
        """The content of an extended header, or a long name."""
        size = number(head[124:136], "size")
        if not 0 <= size <= EXTENDED_MOST:
            raise LayerError(f"an extended header of {size} bytes is more than the {EXTENDED_MOST} that are possible")
        body = self.take(size)
        self.pad(size)
        return body

    def take(self, size: int) -> bytes:
        """The next `size` bytes of what belongs to headers."""
        return self.source.take(size, "a header")

    def pad(self, size: int) -> None:
        """Pass what fills up the last block of `size` bytes of data. At the end of an archive it may be missing."""
        self.source.upto(-size % BLOCK)

    def rest(self) -> None:
        """Read to the end, of which only zeros are left."""
        source = self.source
        while True:
            if source.piece.count(0, source.at) != len(source.piece) - source.at:
                raise LayerError("it goes on after its end")
            source.at = len(source.piece)
            if not source.more():
                return

    def member(self, head: bytes, flag: int) -> None:
        """Push a member."""
        name, link = read_names(head)
        # Owners and modes repeat from member to member.
        mode, uid, gid = self.owners.get(head[100:124]) or self.owner(head[100:124])
        mtime = number(head[136:148], "time")
        kind = KINDS.get(flag, Kind.FILE)
        size = number(head[124:136], "size") if kind is Kind.FILE else 0
        attributes, sparse, numbers = NONE, None, NO_DEVICE
        if self.long_name is not None or self.long_link is not None:
            name, link = self.long_names(name, link)
        if self.local is not None or self.globals:
            said, local = self.said()
            name, link = said.get(b"path") or name, said.get(b"linkpath") or link
            uid, gid, mtime = owner_and_time(said, uid, gid, mtime)
            attributes = xattrs(said.items())
            if kind is Kind.FILE:
                size = decimal(said[b"size"], "size") if said.get(b"size") else size
                sparse = tarsparse.of_records(local, self.take)
                name = sparse.name if sparse and sparse.name else name
        if flag == GNU_SPARSE:
            sparse = self.old_sparse(head, name, sparse)
        check_numbers(name, size, sparse.used if sparse else 0, mtime)
        if name[-1:] == b"/" and flag in (FILE, OLD_FILE) and sparse is None:
            if size:
                raise LayerError(f"the folder {show(name)} has data")
            kind = Kind.DIR  # version 7 tells folders by their names, and GNU tar still reads them so
        if kind is Kind.CHAR or kind is Kind.BLOCK:
            numbers = read_device(head, name)
        place = self.place(name)
        link = b"" if kind is Kind.FILE else link_target(kind, name, link, place)
        if not place and kind is not Kind.DIR:
            raise LayerError(f"it holds {show(name)}, which would stand in the place of the root")
        if sparse is None:
            self.sink.begin(Member(place, kind, mode, uid, gid, mtime, size, link, numbers, attributes))
            self.content(size)
        else:
            parts = tarsparse.checked(sparse, size)
            self.sink.begin(Member(place, kind, mode, uid, gid, mtime, sparse.size, link, numbers, attributes))
            self.sparse(parts, sparse.size, name)
            self.pad(size)
        self.sink.end()

    def content(self, size: int) -> None:
        """Give the data of a file: mostly all of it is in what was read already."""
        source = self.source
        at = source.at
        after = at + size + (-size % BLOCK)
        if after <= len(source.piece):
            if size:
                self.data(source.view[at : at + size])
            source.at = after
        else:
            source.give(size, self.data, "a file")
            self.pad(size)

    def said(self) -> tuple[Mapping[bytes, bytes], list[Record]]:
        """(what the extended headers say of this member, the records that it alone has)."""
        local, self.local = self.local or [], None
        return {**self.globals, **dict(local)} if self.globals else dict(local), local

    def long_names(self, name: bytes, link: bytes) -> tuple[bytes, bytes]:
        """(name, target of a link), with those that GNU tar puts before a member in their place."""
        name, self.long_name = self.once(b"path", self.long_name, name), None
        link, self.long_link = self.once(b"linkpath", self.long_link, link), None
        return name, link

    def old_sparse(self, head: bytes, name: bytes, sparse: tarsparse.Sparse | None) -> tarsparse.Sparse:
        """The map of a sparse file that follows its header."""
        if sparse is not None:
            raise LayerError(f"the sparse file {show(name)} has two maps")
        return tarsparse.old_gnu(head, self.take)

    def sparse(self, parts: tarsparse.Map, size: int, name: bytes) -> None:
        """Give the parts of a sparse file, and zeros between them."""
        self.holes += size - sum(length for _, length in parts)
        if self.holes > HOLES_MOST:
            raise LayerError(f"with {show(name)} its sparse files have more than {HOLES_MOST >> 40} TiB of holes")
        at = 0
        for offset, length in parts:
            if offset > at:
                self.sink.zeros(offset - at)
            self.source.give(length, self.data, "a file")
            at = offset + length
        if size > at:
            self.sink.zeros(size - at)

    def once(self, key: bytes, long: bytes | None, name: bytes) -> bytes:
        """The long name that GNU tar puts before a member. No program writes two of them."""
        if long is None:
            return name
        if any(known == key for known, _ in self.local or ()):
            raise LayerError(f"it names {show(long)} in two ways")
        return long

    def owner(self, field: bytes) -> tuple[int, int, int]:
        """(permissions, owner, group) in a header's fields for them, remembered."""
        if len(self.owners) >= KEPT:
            self.owners.clear()
        known = self.owners[field] = read_owner(field)
        return known

    def place(self, name: bytes) -> bytes:
        """The path that `name` stands for. What is in one folder mostly comes together."""
        above, slash, last = name.rpartition(b"/")
        folder = self.folders.get(above)
        if folder is None or last in (b"", b".", b"..") or len(last) > NAME_MOST or 0 in last:
            found = path(name)
            if slash and last:
                if len(self.folders) >= KEPT:
                    self.folders.clear()
                self.folders[above] = found.rpartition(b"/")[0]
            return found
        place = folder + b"/" + last if folder else last
        return place if len(place) <= PATH_MOST else path(name)


def owner_and_time(said: Mapping[bytes, bytes], uid: int, gid: int, mtime: int) -> tuple[int, int, int]:
    """Return (user, group, time) as an extended header says them; what it does not say stays."""
    uid = identity(decimal(said[b"uid"], "owner")) if said.get(b"uid") else uid
    gid = identity(decimal(said[b"gid"], "group")) if said.get(b"gid") else gid
    return uid, gid, seconds(said[b"mtime"]) if said.get(b"mtime") else mtime
