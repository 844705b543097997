"""A file at an address as a seekable file object: it asks for the bytes that it is asked for (HTTP ranges, RFC 9110
section 14). Everything a server answers is checked against what was asked, and every read has a bound."""

from __future__ import annotations

import io
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envbuild.net.transport import Transport, UnreachableError, retry

if TYPE_CHECKING:
    import requests

TAIL = 1 << 16  # first read: the end record with any comment, and the central directory of most wheels
WINDOW = 1 << 16  # the least that is read at a time
MAX_READ = 1 << 24  # the most that is read at once: a central directory of 16 MiB has 100 000 members
PAUSE = 0.5  # seconds before the second try


class MalformedFileError(Exception):
    """An archive or an answer is not what its format says. Told as InputError by `Wheels.open`."""


class NoRangesError(MalformedFileError):
    """A place answers with whole files only."""

    def __init__(self) -> None:
        super().__init__("the place does not give parts of files (HTTP ranges), which the collectors need")


@dataclass(slots=True)
class Tally:
    """What reading cost: requests and bytes received. Safe to use from several threads."""

    requests: int = 0
    received: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def add(self, received: int) -> None:
        with self.guard:
            self.requests += 1
            self.received += received


class RemoteFile(io.RawIOBase):
    """A file at an address as a seekable file object. Keeps its end and the window around the last read."""

    def __init__(self, transport: Transport, url: str, tally: Tally) -> None:
        super().__init__()
        self.transport, self.url, self.tally = transport, url, tally
        self.position = self.start = 0
        self.window = b""
        self.size = -1
        self.tail = self._tail()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        if at < 0:
            raise MalformedFileError("an offset before its beginning")
        self.position = at
        return at

    def read(self, size: int | None = -1) -> bytes:
        """The next `size` bytes, fewer at the end. Raises Damaged for more than `MAX_READ` at once."""
        wanted = max(self.size - self.position, 0)
        if size is not None and size >= 0:
            wanted = min(size, wanted)
        if wanted > MAX_READ:
            raise MalformedFileError(f"it wants {wanted} bytes read at once")
        data = self._at(self.position, wanted)
        self.position += wanted
        return data

    def _at(self, begin: int, length: int) -> bytes:
        for start, data in ((self.size - len(self.tail), self.tail), (self.start, self.window)):
            if start <= begin and begin + length <= start + len(data):
                return data[begin - start : begin - start + length]
        end = min(begin + max(length, WINDOW), self.size)
        tail = self.size - len(self.tail)
        if begin < tail < end:  # what is known of the end is not asked for again
            self.window = self._range(begin, tail) + self.tail[: end - tail]
        else:
            self.window = self._range(begin, end)
        self.start = begin
        return self.window[:length]

    def _tail(self) -> bytes:
        """The last bytes, and with them the size. Some servers know no ranges that count from the end."""
        try:
            return self._ask(f"bytes=-{TAIL}", TAIL)[1]
        except MalformedFileError:
            self.size = -1
            self._ask("bytes=0-0", 1)
            return self._range(max(self.size - TAIL, 0), self.size)

    def _range(self, begin: int, end: int) -> bytes:
        first, data = self._ask(f"bytes={begin}-{end - 1}", end - begin)
        if first != begin or len(data) != end - begin:
            raise MalformedFileError("the place answered with other bytes than it was asked for")
        return data

    def _ask(self, wanted: str, most: int) -> tuple[int, bytes]:
        """(Offset, bytes) of one range. Raises MalformedFileError, NotFoundError, UnreachableError."""

        def ask() -> tuple[int, bytes]:
            with self.transport.get(self.url, {"Range": wanted}) as answer:
                return self._answer(answer, most)

        return retry(ask, PAUSE)

    def _answer(self, answer: requests.Response, most: int) -> tuple[int, bytes]:
        found = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", answer.headers.get("Content-Range", ""))
        if answer.status_code != 206 or not found:
            raise NoRangesError
        first, last, size = (int(number) for number in found.groups())
        if self.size not in (-1, size):
            raise MalformedFileError("its size changed while it was read")
        data = bytearray()
        for part in answer.iter_content(WINDOW):
            data += part
            if len(data) > most:
                raise MalformedFileError("the place answered with more bytes than it was asked for")
        self.tally.add(len(data))
        if len(data) < last - first + 1:
            raise UnreachableError("the connection broke off")
        if len(data) != last - first + 1 or last >= size:
            raise MalformedFileError("the place answered with other bytes than it was asked for")
        self.size = size
        return first, bytes(data)
