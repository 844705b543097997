"""Heads of HTTP answers, read with a limit of bytes and of time: a server may send interim answers (``100 Continue``)
without an end, or a byte now and then, and no limit of the body applies to that. So for ``CONNECT``."""

from __future__ import annotations

import io
from http.client import HTTPResponse
from typing import Any, ClassVar

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from envbuild.net.failures import RefusedError
from envbuild.net.header_number import header_number
from envbuild.net.limited_reader import LimitedReader


class LimitedAnswer(HTTPResponse):
    """An answer whose head may take `seconds`; the limits of its body are set by `limited_reader.limit_read`.

    Reading the head raises OSError for one that has no end, and what `http.client` raises.
    """

    seconds: ClassVar[float]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        buffered: Any = self.fp  # nothing was read of it so far; `CONNECT` reads it without `begin`
        self.reader = LimitedReader(buffered.detach(), self.seconds)
        self.fp = io.BufferedReader(self.reader)

    def begin(self) -> None:
        """Read the head. Raises RefusedError for a length that is not one: `http.client` would read until the server
        closes the connection."""
        super().begin()
        self.reader.what = "what its answer has around a piece of content"
        lengths = set(self.headers.get_all("Content-Length", []))
        if not self.chunked and (len(lengths) > 1 or None in map(header_number, lengths)):
            raise RefusedError("its answer has a malformed Content-Length")


class LimitedAdapter(HTTPAdapter):
    """Adapter of `requests` whose answers have heads with limits, also by a proxy."""

    def __init__(self, seconds: float, **options: Any) -> None:
        self.seconds = seconds
        super().__init__(**options)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        limit_heads(self.poolmanager, self.seconds)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        limit_heads(manager, self.seconds)
        return manager


def limit_heads(manager: Any, limit: float) -> None:
    """Make the connections of urllib3's `manager` read each head within `limit` seconds."""

    class Answer(LimitedAnswer):
        seconds = limit

    class Connection(HTTPConnection):
        response_class = Answer

    class SecureConnection(HTTPSConnection):
        response_class = Answer

    class Pool(HTTPConnectionPool):
        ConnectionCls = Connection

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = SecureConnection

    manager.pool_classes_by_scheme = {"http": Pool, "https": SecurePool}
