"""A file at an address as a seekable file object, which requests only the bytes that are read (HTTP ranges, RFC 9110
section 14). Every answer is checked against its request, and every read has a limit."""

from __future__ import annotations

import io
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envbuild.net.body import read_body
from envbuild.net.failures import RefusedError, UnreachableError
from envbuild.net.transport import Transport, retry

if TYPE_CHECKING:
    import requests

TAIL = 1 << 16  # first read: the end record with any comment, and the central directory of most wheels
WINDOW = 1 << 16  # the least that is read in one request
MAX_READ = 1 << 24  # the most that is read in one call: a central directory of 16 MiB has 100 000 members
PAUSE = 0.5  # seconds before the second try


class MalformedFileError(Exception):
    """An archive or an answer violates its format. `Wheels.open` raises it as InputError."""


class NoRangesError(MalformedFileError):
    """A place that answers with whole files only."""

    def __init__(self) -> None:
        super().__init__("the server does not support HTTP ranges, which the collectors require")


@dataclass(slots=True)
class Tally:
    """Cost of reading: requests and bytes received. Safe to use from several threads."""

    requests: int = 0
    received: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def add(self, received: int) -> None:
        with self.guard:
            self.requests += 1
            self.received += received


class RemoteFile(io.RawIOBase):
    """A file at an address as a seekable file object. Caches its end and the window around the last read."""

    def __init__(self, transport: Transport, url: str, tally: Tally) -> None:
        super().__init__()
        self.transport, self.url, self.tally = transport, url, tally
        self.position = self.start = 0
        self.window = b""
        self.size = -1
        self.tail = self._read_tail()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        if at < 0:
            raise MalformedFileError("an offset before the start of the file")
        self.position = at
        return at

    def read(self, size: int | None = -1) -> bytes:
        """Return the next `size` bytes, fewer at the end. Raises MalformedFileError for more than `MAX_READ` at
        once."""
        wanted = max(self.size - self.position, 0)
        if size is not None and size >= 0:
            wanted = min(size, wanted)
        if wanted > MAX_READ:
            raise MalformedFileError(f"{wanted} bytes must be read at once")
        data = self._read_at(self.position, wanted)
        self.position += wanted
        return data

    def _read_at(self, begin: int, length: int) -> bytes:
        for start, data in ((self.size - len(self.tail), self.tail), (self.start, self.window)):
            if start <= begin and begin + length <= start + len(data):
                return data[begin - start : begin - start + length]
        end = min(begin + max(length, WINDOW), self.size)
        tail = self.size - len(self.tail)
        if begin < tail < end:  # the cached end is not requested again
            self.window = self._read_range(begin, tail) + self.tail[: end - tail]
        else:
            self.window = self._read_range(begin, end)
        self.start = begin
        return self.window[:length]

    def _read_tail(self) -> bytes:
        """Return the last bytes, and set the size. Some servers do not support ranges that count from the end."""
        try:
            return self._request(f"bytes=-{TAIL}", TAIL)[1]
        except MalformedFileError:
            self.size = -1
            self._request("bytes=0-0", 1)
            return self._read_range(max(self.size - TAIL, 0), self.size)

    def _read_range(self, begin: int, end: int) -> bytes:
        first, data = self._request(f"bytes={begin}-{end - 1}", end - begin)
        if first != begin or len(data) != end - begin:
            raise MalformedFileError("the server returned other bytes than requested")
        return data

    def _request(self, byte_range: str, limit: int) -> tuple[int, bytes]:
        """Return (offset, bytes) of one range. Raises MalformedFileError, NotFoundError, UnreachableError."""

        def request() -> tuple[int, bytes]:
            with self.transport.get(self.url, {"Range": byte_range}) as answer:
                return self._read_answer(answer, limit)

        return retry(request, PAUSE)

    def _read_answer(self, answer: requests.Response, limit: int) -> tuple[int, bytes]:
        found = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", answer.headers.get("Content-Range", ""))
        if answer.status_code != 206 or not found:
            raise NoRangesError
        first, last, size = (int(number) for number in found.groups())
        if self.size not in (-1, size):
            raise MalformedFileError("its size changed while it was read")
        try:
            data = b"".join(read_body(answer, limit, self.transport.limits))
        except RefusedError:
            raise MalformedFileError("the server returned more bytes than requested") from None
        self.tally.add(len(data))
        if len(data) < last - first + 1:
            raise UnreachableError("the connection broke off")
        if len(data) != last - first + 1 or last >= size:
            raise MalformedFileError("the server returned other bytes than requested")
        self.size = size
        return first, data
