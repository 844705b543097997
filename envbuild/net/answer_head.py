"""Heads of HTTP answers, read with a limit of bytes and of time: a server may send interim answers (``100 Continue``)
without an end, or a byte now and then, and no limit of the body applies to that."""

from __future__ import annotations

import io
from http.client import HTTPResponse
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from envbuild.net.limited_reader import LimitedReader
from envbuild.net.limits import LIMITS


class LimitedAnswer(HTTPResponse):
    """An answer whose head has limits; those of its body are set by `limited_reader.limit_read`."""

    def begin(self) -> None:
        """Read the head. Raises OSError for one that has no end, and what `http.client` raises."""
        buffered: Any = self.fp  # nothing was read of it so far
        self.reader = LimitedReader(buffered.detach(), LIMITS.grace)
        self.fp = io.BufferedReader(self.reader)
        super().begin()
        self.reader.what = "what its answer has around a piece of content"


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
