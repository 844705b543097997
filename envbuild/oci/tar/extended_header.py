"""Headers that describe the next member, or all that follow: pax records and the long names of GNU tar.

Formats: see `envbuild.oci.tar.reader`.
"""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.oci.tar.chunks import ChunkReader
from envbuild.oci.tar.fields import (
    SCHILY,
    LayerError,
    Record,
    parse_decimal,
    parse_number,
    parse_records,
    parse_time,
    quote_name,
)
from envbuild.oci.tar.header import check_id
from envbuild.oci.tar.name_count import NameCount
from envbuild.oci.tar.sparse import SPARSE

BLOCK = 512
MAX_EXTENDED = 1 << 20  # bytes of one extended header or long name, as in Go's archive/tar
EXTENDED, SOLARIS, GLOBAL, LONG_NAME, LONG_LINK = b"xXgLK"
# Records with a meaning: global ones are for all members in GNU tar, and for none in Go. git writes a comment.
MEANING = frozenset({b"path", b"linkpath", b"size", b"uid", b"gid", b"mtime"})


class ExtendedHeaders:
    """The extended headers so far, which apply to the next member: `local`, `long_name`, `long_link`. `padding`: the
    bytes behind the content of the last one."""

    __slots__ = ("local", "long_link", "long_name", "names", "padding", "source")

    def __init__(self, source: ChunkReader, names: NameCount) -> None:
        self.source, self.names, self.padding = source, names, b""
        self.local: list[Record] | None = None
        self.long_name: bytes | None = None
        self.long_link: bytes | None = None

    def is_pending(self) -> bool:
        """Return whether a member must follow."""
        return self.local is not None or self.long_name is not None or self.long_link is not None

    def read(self, head: bytes, kind: int) -> bool:
        """Read what follows a header of type `kind`; return False for one of another type. Raises LayerError."""
        if kind == SOLARIS:  # GNU tar reads it as EXTENDED, Go as a member of an unknown type
            raise LayerError("it has an extended header of Solaris")
        if kind == EXTENDED:
            if self.local is not None:
                raise LayerError("a member has two extended headers")
            self.local = self.read_records(head)
        elif kind == GLOBAL:
            if self.is_pending():  # Go discards what precedes a global header
                raise LayerError("a global header is between a member and its extended header")
            for key, _ in self.read_records(head):
                if key in MEANING or key.startswith((SPARSE, SCHILY)):
                    raise LayerError(f"it sets one {quote_name(key)} for all its members")
        elif kind == LONG_NAME:
            self.long_name = self.read_long_name(head)
        elif kind == LONG_LINK:
            self.long_link = self.read_long_name(head)
        else:
            return False
        return True

    def read_records(self, head: bytes) -> list[Record]:
        """Return the records of an extended header. Raises LayerError."""
        found = parse_records(self.read_content(head))
        self.names.add_records(len(found))
        return found

    def read_long_name(self, head: bytes) -> bytes:
        """Return a long name. Raises LayerError for an empty one, which counts for GNU tar, and not for Go, and for one
        behind whose end GNU tar reads on, to the next null byte."""
        content = self.read_content(head)
        if b"\0" not in content and self.padding[:1] not in (b"", b"\0"):
            raise LayerError("a long name has no null byte at its end")
        if name := content.partition(b"\0")[0]:
            return name
        raise LayerError("a long name is empty")

    def read_content(self, head: bytes) -> bytes:
        """Return the content of an extended header, or a long name. Raises LayerError."""
        size = parse_number(head[124:136], "size")
        if not 0 <= size <= MAX_EXTENDED:
            raise LayerError(f"an extended header of {size} bytes is more than the {MAX_EXTENDED} that are possible")
        body = self.source.read_exactly(size, "a header")
        self.padding = self.source.read_up_to(-size % BLOCK)
        return body

    def pop_records(self) -> tuple[Mapping[bytes, bytes], list[Record]]:
        """Return the records of the member's extended header, by key and as they are. Raises LayerError for an empty
        name, which counts for GNU tar, and not for Go."""
        local, self.local = self.local or [], None
        records = dict(local)
        if records.get(b"path") == b"" or records.get(b"linkpath") == b"":
            raise LayerError("a name in an extended header is empty")
        return records, local

    def apply_long_names(self, name: bytes, link: bytes) -> tuple[bytes, bytes]:
        """Return (name, target of a link), replaced by the long ones that GNU tar puts before a member."""
        name, self.long_name = self.choose_name(b"path", self.long_name, name), None
        link, self.long_link = self.choose_name(b"linkpath", self.long_link, link), None
        return name, link

    def choose_name(self, key: bytes, long: bytes | None, name: bytes) -> bytes:
        """Return `long`, the name that GNU tar puts before a member, or else `name`.

        Raises LayerError for a member that has `long` and a record `key`: no program writes both.
        """
        if long is None:
            return name
        if any(known == key for known, _ in self.local or ()):
            raise LayerError(f"it names {quote_name(long)} in two ways")
        return long


def override_owner_and_time(records: Mapping[bytes, bytes], uid: int, gid: int, mtime: int) -> tuple[int, int, int]:
    """Return (user, group, time) of an extended header; those that it lacks are returned unchanged."""
    uid = check_id(parse_decimal(records[b"uid"], "owner")) if records.get(b"uid") else uid
    gid = check_id(parse_decimal(records[b"gid"], "group")) if records.get(b"gid") else gid
    return uid, gid, parse_time(records[b"mtime"]) if records.get(b"mtime") else mtime
