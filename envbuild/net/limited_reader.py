"""Connections that limit the bytes and the time of what one call reads: one read of a body ends only when it has a byte
of content, and trailers of chunks or empty blocks of gzip may follow without an end."""

from __future__ import annotations

import io
import time
from typing import Any

MOST = 1 << 20  # bytes of a head, which `http.client` reads up to 100 lines of 64 KiB, and around a piece of content


class LimitedReader(io.RawIOBase):
    """The connection, which ends with OSError when what is read has more bytes or takes longer than allowed."""

    def __init__(self, raw: Any, seconds: float) -> None:
        self.raw, self.what = raw, "the head of its answer"
        self.allow(MOST, seconds)

    def allow(self, size: int, seconds: float) -> None:
        """Limit the reads that follow, all together, to `size` bytes and to `seconds` from now on."""
        self.size = self.left = size
        self.seconds, self.end = seconds, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count: int | None = self.raw.readinto(buffer)
        self.left -= count or 0
        if self.left < 0:
            raise OSError(f"{self.what} has more than {self.size} bytes")
        if time.monotonic() > self.end:
            raise TimeoutError(f"{self.what} took more than {self.seconds:.0f} seconds")
        return count

    def close(self) -> None:
        self.raw.close()
        super().close()


def limit_read(raw: Any, size: int, seconds: float) -> None:
    """Limit the next read of a body (`raw`: urllib3's answer) that may return `size` bytes. Compressed content is
    smaller than that, and lengths and trailers of chunks need little, so that 1 MiB more is enough for any server."""
    reader = getattr(getattr(raw, "_original_response", None), "reader", None)
    if isinstance(reader, LimitedReader):  # not in an answer of a local socket
        reader.allow(size + MOST, seconds)
