"""Members of wheels on a package index, read by byte ranges: a wheel of 2 GB costs as much as the members read.

`zipfile` reads the archive, over a file object that reads ranges (`envbuild.net.range_file`; what pip calls lazy
wheels). Every size has a bound, because a central directory may claim anything.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import HeaderParser
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from urllib3.exceptions import HTTPError

from envbuild.core.bounded_tar import BoundedTarFile
from envbuild.core.errors import InputError
from envbuild.core.plain_zip import PlainZipFile
from envbuild.net.body import Pace, read_some
from envbuild.net.failures import NotFoundError, UnreachableError, describe_error
from envbuild.net.python_index import IndexFile
from envbuild.net.range_file import MAX_READ, WINDOW, MalformedFileError, NoRangesError, RemoteFile, Tally
from envbuild.net.transport import Transport
from envbuild.net.urls import local_path

if TYPE_CHECKING:
    import requests

MEMBER = 1 << 26  # the largest member that is read whole, where a caller sets no other limit
STEP = 1 << 22
UNPACKED = 1 << 28  # bytes of an sdist before its PKG-INFO
HEADERS = 1 << 19  # bytes of all headers of METADATA
LINE = 4096  # characters of a requirement
RANGES_HINT = "configure an index that supports them as  mirrors: {python: [ADDRESS]}  in site.yaml"


# What `zipfile`, `tarfile` and the decompressors raise for malformed archives.
ARCHIVE_ERRORS = (
    MalformedFileError,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    UnicodeDecodeError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of METADATA or PKG-INFO: Requires-Dist lines with their markers, and the sha256 of the whole text."""

    requires: tuple[str, ...]
    requires_python: str
    sha256: str

    @classmethod
    def of(cls, content: bytes) -> Metadata:
        """Read the two headers of a text. Raise MalformedFileError for one that no index has: requirements of 11 kB
        took a minute, and 600,000 headers ten hours."""
        head = re.split(rb"\r?\n\r?\n", content, maxsplit=1)[0]
        if len(head) > HEADERS:
            raise MalformedFileError(f"its metadata has headers of more than {HEADERS >> 10} KiB")
        parsed = HeaderParser().parsestr(head.decode("utf-8", "replace"))
        requires = tuple(parsed.get_all("Requires-Dist", []))
        if any(len(line) > LINE for line in requires):
            raise MalformedFileError(f"its metadata has a requirement of more than {LINE} characters")
        python = parsed.get_all("Requires-Python", [])
        return cls(requires, python[0] if len(python) == 1 else "", hashlib.sha256(content).hexdigest())


@dataclass(frozen=True, slots=True)
class RemoteWheel:
    """An open wheel. Methods raise MalformedFileError."""

    name: str
    archive: PlainZipFile

    def names(self) -> list[str]:
        return self.archive.namelist()

    def read(self, member: str, most: int = MEMBER) -> bytes:
        """Return all of a member of at most `most` bytes."""
        return b"".join(self.stream(member, most))

    def stream(self, member: str, most: int = MEMBER) -> Iterator[bytes]:
        """Yield the same in pieces, for a large member that is read once."""
        info, done = self._info(member), 0
        if info.file_size > most:
            raise MalformedFileError(f"{member} claims {info.file_size} bytes, which is more than {most}")
        try:
            with self.archive.open(info) as stream:
                while piece := stream.read(STEP):
                    done += len(piece)
                    yield piece
        except ARCHIVE_ERRORS as error:
            raise MalformedFileError(f"{member}: {error}") from None
        if done != info.file_size:
            raise MalformedFileError(f"{member} has {done} bytes, the directory states {info.file_size}")

    def metadata(self) -> Metadata:
        found = [name for name in self.names() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        if len(found) != 1:
            raise MalformedFileError(f"{len(found)} files are its METADATA")
        return Metadata.of(self.read(found[0], 1 << 22))

    def _info(self, member: str) -> zipfile.ZipInfo:
        found = [info for info in self.archive.infolist() if info.filename == member]
        if len(found) != 1:
            raise MalformedFileError(f"{len(found)} members are named {member}")
        return found[0]


@dataclass(frozen=True, slots=True)
class Wheels:
    """Access to wheels and sdists of an index. Safe to use from several threads."""

    transport: Transport
    tally: Tally = field(default_factory=Tally)

    @contextmanager
    def open(self, file: IndexFile) -> Iterator[RemoteWheel]:
        """Open one wheel. Raise InputError, also for errors of the archive in the body of the ``with``."""
        with self._errors(file), self._file(file.url) as stream, PlainZipFile(stream) as archive:
            yield RemoteWheel(file.name, archive)

    def metadata(self, file: IndexFile) -> Metadata:
        """Return METADATA of a wheel, or PKG-INFO of an sdist. Raise InputError."""
        if file.name.endswith(".whl"):
            with self.open(file) as wheel:
                return wheel.metadata()
        with self._errors(file):
            return self._package_info(file)

    def _package_info(self, file: IndexFile) -> Metadata:
        path = local_path(file.url)
        if path is not None:
            with self.transport.open(path) as stream:
                return _package_info(stream)
        with self.transport.get(file.url) as answer:  # read from the beginning up to PKG-INFO
            body = _Body(answer)
            try:
                return _package_info(io.BufferedReader(body, WINDOW))
            finally:
                self.tally.add(body.done)

    @contextmanager
    def _file(self, url: str) -> Iterator[IO[bytes]]:
        path = local_path(url)
        stream: Any = RemoteFile(self.transport, url, self.tally) if path is None else _LocalFile(self.transport, path)
        with stream:
            yield stream

    @contextmanager
    def _errors(self, file: IndexFile) -> Iterator[None]:
        try:
            yield
        except ARCHIVE_ERRORS as error:
            hint = RANGES_HINT if isinstance(error, NoRangesError) else ""
            raise InputError(f"{file.name} cannot be read: {error}", hint, file.name) from None
        except (NotFoundError, UnreachableError, OSError) as error:
            raise InputError(
                f"{file.name} is not available: {describe_error(error)}", "run the command again", file.name
            ) from None


class _LocalFile(io.BufferedReader):
    """A file of a folder, of which no more than `MAX_READ` is read at once: a sparse file may state any size."""

    def __init__(self, transport: Transport, path: Path) -> None:
        with transport.open(path) as file:
            super().__init__(io.FileIO(os.dup(file.fileno())))
        self.size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = max(self.size - self.tell(), 0)
        if size is not None and size >= 0:
            wanted = min(size, wanted)
        if wanted > MAX_READ:
            raise MalformedFileError(f"{wanted} bytes must be read at once")
        return super().read(wanted)


class _Unpacked(io.RawIOBase):
    """The content of a gzip stream, which must have PKG-INFO before `UNPACKED` bytes: 862 bytes may be a gigabyte."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self.stream, self.member, self.done = stream, zlib.decompressobj(zlib.MAX_WBITS | 16), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = b""
        while not found and not self.member.eof:
            packed = self.member.unconsumed_tail or self.stream.read(WINDOW)
            if not packed:
                raise MalformedFileError("it is truncated")
            found = self.member.decompress(packed, len(buffer))
        self.done += len(found)
        if self.done > UNPACKED:
            raise MalformedFileError("its PKG-INFO is not near its beginning")
        buffer[: len(found)] = found
        return len(found)


class _Body(io.RawIOBase):
    """The body of an answer as a file object that ends after `MEMBER` bytes."""

    def __init__(self, answer: requests.Response) -> None:
        super().__init__()
        self.raw, self.pace, self.rest, self.done = answer.raw, Pace(), b"", 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.rest:
            try:
                self.rest = read_some(self.raw, WINDOW, self.pace)
            except HTTPError as error:
                raise UnreachableError(describe_error(error)) from None
        if self.done > MEMBER:
            raise MalformedFileError("its PKG-INFO is not near its beginning")
        size = min(len(self.rest), len(buffer))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        self.done += size
        return size


def _package_info(stream: IO[bytes]) -> Metadata:
    unpacked = io.BufferedReader(_Unpacked(stream), WINDOW)
    with BoundedTarFile.open(fileobj=unpacked, mode="r|") as archive:
        for member in archive:
            if re.fullmatch(r"[^/]+/PKG-INFO", member.name) and member.isreg() and member.size < 1 << 22:
                extracted = archive.extractfile(member)
                return Metadata.of(extracted.read() if extracted else b"")
    raise MalformedFileError("it has no PKG-INFO")
