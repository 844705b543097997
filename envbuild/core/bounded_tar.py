"""Python's tar reader with limits: `tarfile` reads an extended header of any length into memory."""

from __future__ import annotations

import contextlib
import io
import lzma
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tarfile import EOFHeaderError, InvalidHeaderError, ReadError, TruncatedHeaderError  # type: ignore[attr-defined]
from typing import Any, NoReturn, Self

from envbuild.core.limited_xz import CHUNK, LimitedXz
from envbuild.core.pax_records import check_records

MAX_EXTENDED = 1 << 20  # bytes of one extended header or long name, as in Go's archive/tar
MAX_CHAIN = 8  # extended headers of one member
MAX_GLOBALS = 100  # global records; every member has a copy of them
MAX_MEMBERS = 1_000_000  # of one archive; the largest sources have 100,000
MAX_TEXTS = 64 << 20  # bytes of their names, targets and extended headers: `tarfile` holds those of all members
MAX_HEADERS = 1 << 30  # bytes of all headers, of which nothing may remain
USUAL_RECORDS, MAX_RECORDS = 10, 2_000_000  # of a member; of all above that: each takes 3 µs
POSIX, STAR = b"ustar\0", b"tar\0"  # magic of a header; at its end
# Octal digits, nothing, or base-256. `tarfile` ends a number at a null byte in front of it, and GNU tar and Go do not.
SIZE = re.compile(rb" *[0-7]+ *(\0.*)?|[ \0]*|[\x80\xff].*", re.DOTALL)
HEADERS = (
    tarfile.XHDTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class BoundedTarInfo(tarfile.TarInfo):
    """A member whose extended headers have limits."""

    @classmethod
    def frombuf(cls, *arguments: Any, **options: Any) -> Self:
        """Return the member of a header. Raises TarError."""
        found = super().frombuf(*arguments, **options)
        if not SIZE.fullmatch(arguments[0][124:136]):
            raise tarfile.ReadError(f"the size of {found.name[:200]!r} is a number that programs read differently")
        if has_ambiguous_prefix(arguments[0]):
            raise tarfile.ReadError(f"{found.name[:200]!r} has a prefix that programs read differently")
        found.refuse_negative()
        if found.isdir() and arguments[0][156:157] == tarfile.AREGTYPE and found.size:
            raise tarfile.ReadError(f"{found.name[:200]!r} is named as a folder, and is a file")
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
        is_whole = tarfile.chain == 1  # else its extended header is applied to it by the call before
        try:
            found = super().fromtarfile(tarfile)
        except EOFHeaderError:
            tarfile.check_end()
            raise
        except (InvalidHeaderError, TruncatedHeaderError) as error:  # else the archive would end here for `tarfile`
            if tarfile.offset:
                raise ReadError(f"a header is damaged: {error}") from None
            raise
        tarfile.chain, tarfile.kinds = 0, b""
        found.refuse_negative()  # of a pax header
        if is_whole:
            found.refuse_odd_kinds()
        tarfile.count(found)
        if found.issparse():  # also by a map in a pax header
            found.refuse_sparse()
        elif any(key.startswith("GNU.sparse.") for key in found.pax_headers):  # Go reads none without a map
            raise ReadError(f"{found.name[:200]!r} has records of a sparse file, and is none")
        return found

    def refuse_negative(self) -> None:
        """Raise ReadError for a negative size, by which the bytes of other members could be hidden from a limit."""
        if self.size < 0:
            raise tarfile.ReadError(f"{self.name[:200]!r} has {self.size} bytes")

    def refuse_odd_kinds(self) -> None:
        """Raise ReadError for a member that GNU tar and Go read as another kind of file, or as a longer one."""
        if self.isreg() and (self.name.endswith("/") or self.pax_headers.get("path", "").endswith("/")):
            raise tarfile.ReadError(f"{self.name[:200]!r} is named as a folder, and is a file")
        if not self.isreg() and self.type in tarfile.SUPPORTED_TYPES and self.pax_headers.get("size", "0").strip("0"):
            raise tarfile.ReadError(f"{self.name[:200]!r} has a size, and is not a file")

    def refuse_sparse(self) -> NoReturn:
        """Raise ReadError for a sparse file: neither packages, saved images nor envbuild's own archives have one."""
        raise tarfile.ReadError(f"{self.name[:200]!r} is a sparse file")

    def _proc_member(self, archive: BoundedTarFile) -> Any:
        if self.type in HEADERS:
            archive.begin_header(self.type)
        return super()._proc_member(archive)  # type: ignore[misc]

    def _proc_pax(self, archive: BoundedTarFile) -> Any:
        content = archive.read_ahead(self.size)
        self.refuse_padding(content)
        archive.count_records(check_records(content[: self.size], shared=self.type == tarfile.XGLTYPE))
        with archive.returned(content):
            return super()._proc_pax(archive)  # type: ignore[misc]

    def refuse_padding(self, content: bytes) -> None:
        """Raise ReadError for blocks of an extended header in which something follows: `tarfile` reads it, too."""
        if content[self.size :].strip(b"\0"):
            raise tarfile.ReadError("something follows an extended header in its last block")

    def _proc_gnulong(self, archive: BoundedTarFile) -> Any:
        content = archive.read_ahead(self.size)
        self.refuse_padding(content)
        with archive.returned(content):
            found = super()._proc_gnulong(archive)  # type: ignore[misc]
        if not (found.name if self.type == tarfile.GNUTYPE_LONGNAME else found.linkname):
            raise tarfile.ReadError("a long name is empty")  # which counts for `tarfile`, and not for Go
        return found

    def _proc_gnusparse_10(self, *arguments: Any) -> Any:
        self.refuse_sparse()  # before its map is read


def has_ambiguous_prefix(head: bytes) -> bool:
    """Return whether a header has a prefix of its name where `tarfile` alone reads one (it has no POSIX header), or one
    that Go ends earlier (star's form)."""
    if head[257:263] != POSIX:
        return bool(head[345])
    return head[508:512] == STAR and bool(head[475])


class _ReturnedBytes:
    """A file of which the next bytes were read already."""

    def __init__(self, file: Any, content: bytes) -> None:
        self.file = file
        self.content = content

    def read(self, size: int) -> bytes:
        content, self.content = self.content[:size], self.content[size:]
        more: bytes = self.file.read(size - len(content)) if len(content) < size else b""
        return content + more

    def tell(self) -> int:
        position: int = self.file.tell() - len(self.content)
        return position

    def seek(self, *arguments: Any) -> int:
        self.content = b""
        position: int = self.file.seek(*arguments)
        return position


class BoundedTarFile(tarfile.TarFile):
    """A tar archive that takes little memory for its headers. Reading it raises TarError for those over a limit, and
    for sparse files."""

    tarinfo = BoundedTarInfo
    chain = found = texts = headers = records = 0
    kinds = b""  # of the extended headers of the current member
    most_members = MAX_MEMBERS

    @classmethod
    def xzopen(cls, name: Any, mode: Any = "r", fileobj: Any = None, preset: Any = None, **options: Any) -> Self:
        """Open an .xz archive for reading, as `tarfile.TarFile.open` calls it. Raises ReadError."""
        file = fileobj or Path(name).open("rb")  # noqa: SIM115  `LimitedXz` closes it
        content = io.BufferedReader(LimitedXz(file, owned=not fileobj), CHUNK)
        try:
            found = cls.taropen(name, mode, content, **options)
        except (lzma.LZMAError, EOFError) as error:
            content.close()
            raise tarfile.ReadError(f"not an xz archive: {error}") from None
        except BaseException:
            content.close()
            raise
        found._extfileobj = False  # type: ignore[attr-defined]  # it closes `content`, as tarfile's own xzopen has it
        return found

    def read_ahead(self, size: int) -> bytes:
        """Read the blocks of `size` bytes. Raises ReadError if the file ends before."""
        assert self.fileobj
        blocks = -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        content: bytes = self.fileobj.read(blocks)
        if len(content) < blocks:
            raise tarfile.ReadError("unexpected end of data")
        return content

    @contextlib.contextmanager
    def returned(self, content: bytes) -> Iterator[None]:
        """Let the next bytes be read again meanwhile."""
        whole = self.fileobj
        self.fileobj = _ReturnedBytes(whole, content)  # type: ignore[assignment]
        try:
            yield
        finally:
            self.fileobj = whole

    def count_records(self, count: int) -> None:
        """Count the records of one extended header. Raises ReadError."""
        self.records += max(count - USUAL_RECORDS, 0)
        if self.records > MAX_RECORDS:
            raise tarfile.ReadError(f"it has more than {MAX_RECORDS} unusual records in extended headers")

    def begin_header(self, kind: bytes) -> None:
        """Note an extended header of the current member. Raises ReadError for those in an order in which other programs
        take other names than `tarfile`."""
        long_names = tarfile.GNUTYPE_LONGNAME + tarfile.GNUTYPE_LONGLINK
        if kind == tarfile.SOLARIS_XHDTYPE:
            raise tarfile.ReadError("it has an extended header of Solaris")
        if kind in self.kinds or (self.kinds and not (kind in long_names and self.kinds in long_names)):
            raise tarfile.ReadError("a member has two extended headers, which programs read differently")
        if kind != tarfile.XGLTYPE:
            self.kinds += kind

    def check_end(self) -> None:
        """Check that the block of zeros at which `tarfile` ends is not a single one: GNU tar reads on behind it. Raises
        ReadError."""
        assert self.fileobj
        if self.fileobj.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError("it continues after its end")

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
