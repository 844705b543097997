"""Bodies of answers, read with a limit of bytes and a least speed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from envbuild.net.failures import TooLongError, UnreachableError, describe_error
from envbuild.net.header_number import header_number
from envbuild.net.limited_reader import limit_read
from envbuild.net.limits import LIMITS, DownloadLimits
from envbuild.net.miss import MissKind

CHUNK = 1 << 18
# Each read takes ten microseconds: bytes of a read on average, after the first reads, so that 16 MiB of chunks of two
# bytes do not take more than a minute of a processor.
LEAST_READ, FREE_READS = 32, 100_000


class Pace:
    """The time that reading took so far, compared with what was received."""

    def __init__(self, limits: DownloadLimits = LIMITS) -> None:
        self.limits, self.spent, self.received, self.reads = limits, 0.0, 0, 0

    def left(self) -> float:
        """Return the seconds that reading may take until the next byte; less than 0 when it is too slow."""
        return self.limits.grace + self.received / self.limits.slowest - self.spent

    def add(self, seconds: float, received: int) -> None:
        """Raise UnreachableError when all reads together are too slow, or too many for the bytes that they received."""
        self.spent += seconds
        self.received += received
        self.reads += 1
        if self.reads > FREE_READS + self.received // LEAST_READ:
            raise UnreachableError(f"it sends less than {LEAST_READ} bytes at a time")
        if self.left() < 0:
            raise UnreachableError(f"it sends less than {self.limits.slowest} bytes per second")


def read_some(raw: Any, size: int, pace: Pace, *, decode: bool = False) -> bytes:
    """Return what one read of the connection has, up to `size` bytes; none at the end of the body.

    Raises UnreachableError when the body is too slow, and what urllib3 raises.
    """
    limit_read(raw, size, pace.left())
    before = time.monotonic()
    # read() waits until it has all of `size`, so that a server which sends one byte a minute would never be noticed.
    read = getattr(raw, "read1", raw.read)  # urllib3 2.1
    chunk: bytes = read(size, decode_content=decode) or b""
    pace.add(time.monotonic() - before, len(chunk))
    return chunk


def read_body(
    answer: Any,
    limit: int,
    limits: DownloadLimits = LIMITS,
    *,
    decode: bool = False,
    kind: MissKind = MissKind.REFUSED,
) -> Iterator[bytes]:
    """Yield the body of a streamed answer as it is received, with `decode` uncompressed.

    Raises TooLongError of `kind` when it has more than `limit` bytes, UnreachableError for network errors and for a
    body that is too slow. At most one byte is read beyond the limit.
    """
    from urllib3.exceptions import HTTPError

    if (header_number(answer.headers.get("Content-Length", "")) or 0) > limit:
        raise TooLongError(f"it has more than {limit} bytes", kind=kind)
    pace, size = Pace(limits), 0
    while True:
        try:
            chunk = read_some(answer.raw, min(CHUNK, limit - size + 1), pace, decode=decode)
        except (HTTPError, OSError) as error:  # not an error of the disk that the body is written to
            with suppress(Exception):
                answer.close()
            raise UnreachableError(describe_error(error)) from None
        if not chunk:
            return
        size += len(chunk)
        if size > limit:
            raise TooLongError(f"it has more than {limit} bytes", kind=kind)
        yield chunk


def discard_body(answer: Any, limits: DownloadLimits = LIMITS) -> None:
    """Read a body that is not used, so that its connection can be used again; close that if the body is large."""
    try:
        for _ in read_body(answer, limits.discarded, limits):
            pass
    except UnreachableError:
        answer.raw.close()
