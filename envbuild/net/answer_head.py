"""Heads of HTTP answers, read with a limit of bytes and of time: a server may send interim answers (``100 Continue``)
without an end, or a byte now and then, and no limit of the body applies to that."""

from __future__ import annotations

import io
import time
from http.client import HTTPResponse
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from envbuild.net.limits import LIMITS

MOST = 1 << 20  # bytes of a head; `http.client` reads up to 100 lines of 64 KiB


class HeadReader(io.RawIOBase):
    """The connection, which ends with OSError when the head of an answer is too long or takes too long."""

    def __init__(self, raw: Any, seconds: float) -> None:
        self.raw, self.end, self.received = raw, time.monotonic() + seconds, 0
        self.in_head = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count: int | None = self.raw.readinto(buffer)
        if self.in_head:
            self.received += count or 0
            if self.received > MOST:
                raise OSError(f"the head of its answer has more than {MOST} bytes")
            if time.monotonic() > self.end:
                raise TimeoutError(f"the head of its answer took more than {LIMITS.grace:.0f} seconds")
        return count

    def close(self) -> None:
        self.raw.close()
        super().close()


class LimitedAnswer(HTTPResponse):
    """An answer whose head has limits."""

    def begin(self) -> None:
        """Read the head. Raises OSError for one that has no end, and what `http.client` raises."""
        buffered: Any = self.fp  # nothing was read of it so far
        reader = HeadReader(buffered.detach(), LIMITS.grace)
        self.fp = io.BufferedReader(reader)
        super().begin()
        reader.in_head = False


class LimitedConnection(HTTPConnection):
    response_class = LimitedAnswer


class LimitedSecureConnection(HTTPSConnection):
    response_class = LimitedAnswer


class LimitedPool(HTTPConnectionPool):
    ConnectionCls = LimitedConnection


class LimitedSecurePool(HTTPSConnectionPool):
    ConnectionCls = LimitedSecureConnection


class LimitedAdapter(HTTPAdapter):
    """Adapter of `requests` whose answers have heads with limits, also by a proxy."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        _limit(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        _limit(manager)
        return manager


def _limit(manager: Any) -> None:
    manager.pool_classes_by_scheme = {"http": LimitedPool, "https": LimitedSecurePool}
