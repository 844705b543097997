"""Python's tar reader with limits: `tarfile` reads an extended header of any length into memory."""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Iterator
from typing import Any, Self

MAX_EXTENDED = 1 << 20  # bytes of one extended header or long name, as in Go's archive/tar
MAX_CHAIN = 8  # extended headers of one member
MAX_GLOBALS = 100  # global records; every member has a copy of them
MAX_MEMBERS = 1_000_000  # of one archive; the largest sources have 100,000
MAX_TEXTS = 64 << 20  # bytes of their names, targets and extended headers: `tarfile` holds those of all members
MAX_HEADERS = 1 << 30  # bytes of all headers, of which nothing may remain
MAX_MAP = 4 << 20  # bytes of the map of a sparse file: 170,000 parts; `tarfile` makes a pair of numbers of each
HEADERS = (
    tarfile.XHDTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class BoundedTarInfo(tarfile.TarInfo):
    """A member whose extended headers have limits."""

    sparse_files = False

    @classmethod
    def frombuf(cls, *arguments: Any, **options: Any) -> Self:
        """Return the member of a header. Raises TarError."""
        found = super().frombuf(*arguments, **options)
        found.refuse_negative()
        if found.type in HEADERS and found.size > MAX_EXTENDED:
            raise tarfile.ReadError(f"an extended header has {found.size} bytes")
        if found.type == tarfile.GNUTYPE_SPARSE:
            found.refuse_sparse()
        return found

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        """Return the next member; called again for the one behind an extended header. Raises TarError."""
        assert isinstance(tarfile, BoundedTarFile)
        tarfile.enter()
        found = super().fromtarfile(tarfile)
        tarfile.chain = 0
        found.refuse_negative()  # of a pax header
        tarfile.count(found)
        if found.issparse():  # also by a map in a pax header
            found.refuse_sparse()
        return found

    def refuse_negative(self) -> None:
        """Raise ReadError for a negative size, by which the bytes of other members could be hidden from a limit."""
        if self.size < 0:
            raise tarfile.ReadError(f"{self.name[:200]!r} has {self.size} bytes")

    def refuse_sparse(self) -> None:
        """Raise ReadError for a sparse file where none may be."""
        if not self.sparse_files:
            raise tarfile.ReadError(f"{self.name[:200]!r} is a sparse file")

    def _proc_gnusparse_10(self, *arguments: Any) -> Any:
        self.refuse_sparse()  # before its map is read
        return super()._proc_gnusparse_10(*arguments)  # type: ignore[misc]


class SparseTarInfo(BoundedTarInfo):
    """A member that may be a sparse file of any form, with a map of at most MAX_MAP bytes."""

    sparse_files = True

    def _proc_sparse(self, archive: BoundedTarFile) -> Any:
        with archive.limited(MAX_MAP):
            return super()._proc_sparse(archive)  # type: ignore[misc]

    def _proc_gnusparse_10(self, following: Any, pax_headers: Any, archive: BoundedTarFile) -> Any:
        with archive.limited(MAX_MAP):
            return super()._proc_gnusparse_10(following, pax_headers, archive)


class _LimitedReads:
    """A file of which `left` more bytes may be read."""

    def __init__(self, file: Any, left: int) -> None:
        self.file = file
        self.left = left

    def read(self, size: int) -> bytes:
        self.left -= size
        content: bytes = self.file.read(size)
        if self.left < 0 or len(content) < size:
            raise tarfile.ReadError("the map of a sparse file is too long, or ends early")
        return content

    def tell(self) -> int:
        position: int = self.file.tell()
        return position


class BoundedTarFile(tarfile.TarFile):
    """A tar archive that takes little memory for its headers. Reading it raises TarError for those over a limit, and
    for sparse files, unless `tarinfo` is SparseTarInfo."""

    tarinfo = BoundedTarInfo
    chain = found = texts = headers = 0
    most_members = MAX_MEMBERS

    @contextlib.contextmanager
    def limited(self, most: int) -> Iterator[None]:
        """Read at most `most` bytes meanwhile. Raises ReadError for more."""
        whole = self.fileobj
        self.fileobj = _LimitedReads(whole, most)  # type: ignore[assignment]
        try:
            yield
        finally:
            self.fileobj = whole

    def enter(self) -> None:
        """Count a header of the current member. Raises ReadError."""
        self.chain += 1
        if self.chain > MAX_CHAIN:
            raise tarfile.ReadError(f"a member has more than {MAX_CHAIN} extended headers")
        if len(self.pax_headers) > MAX_GLOBALS:
            raise tarfile.ReadError(f"it has more than {MAX_GLOBALS} global records")

    def count(self, member: tarfile.TarInfo) -> None:
        """Count a member and its texts. Raises ReadError."""
        self.found += 1
        self.texts += len(member.name) + len(member.linkname)
        self.texts += sum(len(key) + len(value) for key, value in member.pax_headers.items())
        self.headers += member.offset_data - member.offset
        if self.headers > MAX_HEADERS:
            raise tarfile.ReadError(f"its headers have more than {MAX_HEADERS} bytes")
        if self.found > self.most_members:
            raise tarfile.ReadError(f"it has more than {self.most_members} members")
        if self.texts > MAX_TEXTS:
            raise tarfile.ReadError(f"its names and extended headers have more than {MAX_TEXTS} bytes")


class ImageTarFile(BoundedTarFile):
    """An archive of images: a few files a layer."""

    most_members = 100_000
