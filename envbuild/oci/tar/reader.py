"""Reader of a layer's tar, once from front to back: it parses headers and passes data on unchanged.

Formats: POSIX.1-2017, pax(1), "ustar Interchange Format" and "pax Interchange Format"; GNU tar manual, "Basic Tar
Format" and "Storing Sparse Files"; the tar of Unix version 7. What members mean is in the OCI image spec, layer.md.

A layer may come from an untrusted source. Memory follows what has really been read: lengths that a header claims are
compared with limits before anything is stored, and data goes to the sink in the chunks in which it came. If programs
disagree about a form, it is refused unless Go's archive/tar and GNU tar both read it (Docker and buildah are written
with the first, and pack layers with it).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import cast

from envbuild.oci.tar import sparse as tarsparse
from envbuild.oci.tar.chunks import ChunkReader, Readable
from envbuild.oci.tar.extended_header import ExtendedHeaders, override_owner_and_time
from envbuild.oci.tar.fields import (
    MAX_NAME,
    MAX_PATH,
    LayerError,
    member_path,
    parse_decimal,
    parse_number,
    parse_xattrs,
    quote_name,
)
from envbuild.oci.tar.header import (
    GNU,
    GNU_SPARSE,
    KINDS,
    NO_DEVICE,
    OLD_FILE,
    POSIX,
    check_numbers,
    link_target,
    read_device,
    read_names,
    read_owner,
)
from envbuild.oci.tar.member import AUFS, OPAQUE, Kind, Member, Sink
from envbuild.oci.tar.name_count import NameCount

__all__ = ["LayerError", "Readable", "read_tar"]

BLOCK = 512
MAX_HOLES = 1 << 42  # bytes of holes in all sparse files of a layer: a packed hole takes memory too, 4 bytes a block
ADLER = 65521  # zlib's adler32 is 1 + the sum of the bytes modulo this, in its lower half (RFC 1950)
CACHE_SIZE = 1024  # entries in each cache, of owners and of folders
ZEROS = bytes(BLOCK)
# Within a folder; Docker leaves out files of aufs at the top, but for the one that hides a folder, and makes others.
INNER_AUFS, INNER_OPAQUE = b"/" + AUFS, b"/" + OPAQUE

# types of headers that are not members
LABEL = ord("V")
BACKUPS = frozenset(b"DMN")  # of GNU tar: the names in a folder, the rest of a file of another volume, renamings

NO_XATTRS: Mapping[bytes, bytes] = {}


def read_tar(stream: Readable, sink: Sink, names: NameCount | None = None) -> int:
    """Push the members of the tar in `stream` into `sink` (which is not closed), and read it to its end.

    `names` counts the members: of this tar, or of several. Return the number of bytes read. Raises LayerError for
    anything other than a valid tar of a layer; what `stream` and `sink` raise passes through.
    """
    source = ChunkReader(stream)
    _Reader(source, sink, names or NameCount()).run()
    return source.before + source.at


class _Reader:
    """Parser of the headers of members."""

    def __init__(self, source: ChunkReader, sink: Sink, names: NameCount) -> None:
        self.source, self.sink, self.names = source, sink, names
        self.data = cast("Callable[[memoryview], None]", sink.data)
        self.extended = ExtendedHeaders(source, names)
        self.holes = 0
        self.owners: dict[bytes, tuple[int, int, int]] = {}
        self.folders: dict[bytes, bytes] = {}

    def run(self) -> None:
        """Read all headers up to the end of the archive. Raises LayerError."""
        from isal.isal_zlib import adler32  # sums a header at a tenth of what Python needs

        source = self.source
        while True:
            at = source.at
            head = source.chunk[at : at + BLOCK]
            if len(head) == BLOCK:
                source.at = at + BLOCK
            else:
                head = source.read_up_to(BLOCK)
                if not head:
                    break
                if len(head) < BLOCK:
                    raise LayerError("it ends in the middle of a header")
            if head == ZEROS:
                self.read_trailer()
                break
            # The sum counts its own field as spaces.
            total = (adler32(head[156:], adler32(head[:148])) & 0xFFFF) - 1 + 8 * 32
            try:
                wrong = (total - parse_number(head[148:155], "sum")) % ADLER
            except LayerError:
                wrong = True
            if wrong:
                self.check_sum(head)
            kind = head[156]
            if kind in KINDS:
                self.push_member(head, kind)
            else:
                self.read_other(head, kind)
        if self.extended.is_pending():
            raise LayerError("it ends after an extended header")

    def check_sum(self, head: bytes) -> None:
        """Raise LayerError unless the sum of a header is right in a rare form: without a terminator, or of signed
        bytes, as some old programs wrote it (POSIX.1-2017 has unsigned ones)."""
        rest = head[:148] + head[156:]
        signed = sum(value - 256 if value > 127 else value for value in rest)
        with contextlib.suppress(LayerError):
            if parse_number(head[148:156], "sum") - 8 * 32 in (sum(rest), signed):
                return
        where = self.source.before + self.source.at - BLOCK
        raise LayerError(f"its header at byte {where} is damaged, or it is not a tar")

    def read_other(self, head: bytes, kind: int) -> None:
        """Read a header of a rare type, or one that describes the next member."""
        if self.extended.read(head, kind):
            return
        if kind == LABEL:  # a name of the archive, not a member
            if self.extended.is_pending() or parse_number(head[124:136], "size"):
                raise LayerError("its volume label is damaged")
        elif kind in BACKUPS:
            raise LayerError("it is a backup or a part of one (tar --incremental, --multi-volume), not a layer")
        elif kind == GNU_SPARSE and head[257:265] != GNU:
            raise LayerError("it contains a sparse file in a form that envbuild does not support")
        else:  # POSIX.1-2017: an unknown type is a regular file
            self.push_member(head, kind)

    def read_exactly(self, size: int) -> bytes:
        """Return the next `size` bytes, which belong to headers. Raises LayerError."""
        return self.source.read_exactly(size, "a header")

    def skip_padding(self, size: int) -> None:
        """Skip the padding of the last block of `size` bytes of data. At the end of an archive it may be missing."""
        self.source.read_up_to(-size % BLOCK)

    def read_trailer(self) -> None:
        """Read to the end. Raises LayerError if anything but zeros follows."""
        source = self.source
        while True:
            if source.chunk.count(0, source.at) != len(source.chunk) - source.at:
                raise LayerError("it continues after its end")
            source.at = len(source.chunk)
            if not source.read_more():
                return

    def push_member(self, head: bytes, flag: int) -> None:
        """Push the member of a header and its data into the sink. Raises LayerError."""
        name, link = read_names(head)
        # Owners and modes repeat from member to member.
        mode, uid, gid = self.owners.get(head[100:124]) or self.parse_owner(head[100:124])
        mtime = parse_number(head[136:148], "time")
        kind = KINDS.get(flag, Kind.FILE)
        size = parse_number(head[124:136], "size") if kind is Kind.FILE else 0
        attributes, sparse, numbers = NO_XATTRS, None, NO_DEVICE
        extended = self.extended
        if extended.long_name is not None or extended.long_link is not None:
            name, link = extended.apply_long_names(name, link)
        if extended.local is not None:
            records, local = extended.pop_records()
            name, link = records.get(b"path", name), records.get(b"linkpath", link)
            uid, gid, mtime = override_owner_and_time(records, uid, gid, mtime)
            attributes = parse_xattrs(records.items())
            if kind is Kind.FILE:
                size = parse_decimal(records[b"size"], "size") if records.get(b"size") else size
                sparse = tarsparse.read_sparse_records(local, self.read_exactly)
                if sparse and head[257:263] != POSIX:  # GNU tar reads its own header as a plain file, Go as this one
                    raise LayerError(f"the sparse file {quote_name(name)} has no POSIX header")
                name = sparse.name if sparse and sparse.name else name
            elif any(key.startswith(tarsparse.SPARSE) for key, _ in local):
                raise LayerError(f"{quote_name(name)} is a sparse file, and of another type")
        if flag == GNU_SPARSE:
            sparse = self.read_old_map(head, name, sparse)
        check_numbers(name, size, sparse.used if sparse else 0, mtime)
        if name[-1:] == b"/" and kind is Kind.FILE:
            if flag != OLD_FILE or sparse:  # GNU tar makes folders of some, Go files
                raise LayerError(f"{quote_name(name)} is named as a folder, and is a file")
            if size:
                raise LayerError(f"the folder {quote_name(name)} has data")
            kind = Kind.DIR  # version 7 marks folders by their names, and both still read them so
        if kind is Kind.CHAR or kind is Kind.BLOCK:
            if head[257:263] != POSIX and head[257:265] != GNU:  # GNU tar and Go read no numbers there
                raise LayerError(f"the device {quote_name(name)} is in a header of Unix version 7, which has none")
            numbers = read_device(head, name)
            if kind is Kind.CHAR and numbers == (0, 0):
                raise LayerError(f"the device {quote_name(name)} is 0:0, by which an overlay hides a file")
        path = self.resolve_path(name)
        if INNER_AUFS in path and not path.endswith(INNER_OPAQUE):
            raise LayerError(f"it contains {quote_name(name)}, a name of aufs within a folder")
        link = b"" if kind is Kind.FILE else link_target(kind, name, link, path)
        if not path and kind is not Kind.DIR:
            raise LayerError(f"it contains {quote_name(name)}, which would replace the root")
        size_of_attributes = sum(map(len, (*attributes, *attributes.values()))) if attributes else 0
        self.names.add(1, len(path) + len(link) + size_of_attributes)
        if sparse is None:
            self.sink.begin(Member(path, kind, mode, uid, gid, mtime, size, link, numbers, attributes))
            self.push_data(size)
        else:
            parts = tarsparse.check_map(sparse, size)
            self.sink.begin(Member(path, kind, mode, uid, gid, mtime, sparse.size, link, numbers, attributes))
            self.push_sparse(parts, sparse.size, name)
            self.skip_padding(size)
        self.sink.end()

    def push_data(self, size: int) -> None:
        """Push the data of a file: mostly all of it is in the current chunk."""
        source = self.source
        at = source.at
        after = at + size + (-size % BLOCK)
        if after <= len(source.chunk):
            if size:
                self.data(source.view[at : at + size])
            source.at = after
        else:
            source.copy_to(size, self.data, "a file")
            self.skip_padding(size)

    def read_old_map(self, head: bytes, name: bytes, sparse: tarsparse.SparseFile | None) -> tarsparse.SparseFile:
        """Return the sparse file whose map is in its header and follows it. Raises LayerError."""
        if sparse is not None:
            raise LayerError(f"the sparse file {quote_name(name)} has two maps")
        return tarsparse.read_old_gnu_map(head, self.read_exactly)

    def push_sparse(self, parts: tarsparse.SparseMap, size: int, name: bytes) -> None:
        """Push the parts of a sparse file, and zeros between them. Raises LayerError."""
        self.holes += size - sum(length for _, length in parts)
        if self.holes > MAX_HOLES:
            raise LayerError(f"with {quote_name(name)} its sparse files have more than {MAX_HOLES >> 40} TiB of holes")
        at = 0
        for offset, length in parts:
            if offset > at:
                self.sink.zeros(offset - at)
            self.source.copy_to(length, self.data, "a file")
            at = offset + length
        if size > at:
            self.sink.zeros(size - at)

    def parse_owner(self, field: bytes) -> tuple[int, int, int]:
        """Return (permissions, owner, group) in a header's fields for them, and cache it."""
        if len(self.owners) >= CACHE_SIZE:
            self.owners.clear()
        known = self.owners[field] = read_owner(field)
        return known

    def resolve_path(self, name: bytes) -> bytes:
        """Return the path for `name`. Members of one folder mostly follow each other, so that folders are cached."""
        above, slash, last = name.rpartition(b"/")
        folder = self.folders.get(above)
        if folder is None or last in (b"", b".", b"..") or len(last) > MAX_NAME or 0 in last:
            found = member_path(name)
            if slash and last not in (b"", b"."):  # their path is that of the folder
                if len(self.folders) >= CACHE_SIZE:
                    self.folders.clear()
                self.folders[above] = found.rpartition(b"/")[0]
            return found
        path = folder + b"/" + last if folder else last
        return path if len(path) <= MAX_PATH else member_path(name)
