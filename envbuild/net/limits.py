"""Limits of what is read from servers: bytes where no lock knows the size, redirects, attempts and time."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """The table of all limits; docs/sites.md ("Limits") lists them for users.

    Bytes of an answer, by its kind. A file whose size the lock knows has that size as its limit.

    - `page`: a page of a package index (100 000 files with 0.6 KiB each), or a document of a layout
    - `manifest`: a manifest or an index of a registry; real ones have some ten thousand bytes
    - `key`: a file of OpenPGP keys
    - `token`: the answer of a token service
    - `file`: a file whose size is not known before it is downloaded
    - `discarded`: the body of a redirect or of a login request, which is read so that the connection can be used again

    Package lists are read by apt: a Release file has at most `release` bytes, and names the size of everything else.

    `retry_after`: the most seconds that a busy server may request with Retry-After.

    Patience: `connect` and `silence` are the seconds without a connection and without a byte after which an attempt
    ends. A body may take `grace` seconds, and one second more for each `slowest` bytes. `failures`: requests in a row
    that a host fails (each with all its attempts) before nothing more is requested from it. `program`: seconds of one
    run of uv or apt-get, `gpg`: of all runs of gpg for a file of keys; `program_memory`: bytes of memory of a program,
    because uv reads a page of an index as a whole. `program_file`: bytes of a file that uv writes.
    """

    page: int = 64 << 20
    manifest: int = 16 << 20
    key: int = 1 << 20
    token: int = 1 << 20
    file: int = 64 << 30
    discarded: int = 64 << 10
    release: int = 10 << 20
    redirects: int = 5
    retry_after: float = 60
    connect: float = 20
    silence: float = 120
    grace: float = 300
    slowest: int = 10_000
    failures: int = 8
    program: float = 3600
    gpg: float = 30
    program_memory: int = 4 << 30
    program_file: int = 8 << 30


LIMITS = DownloadLimits()


@dataclass(slots=True)
class HostFailures:
    """Requests that failed in a row, for each host, and the hosts that were not reached, with the reason. Safe to
    use from several threads."""

    counts: dict[str, int] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def count(self, url: str) -> int:
        """Return how many requests to the host of `url` failed since it answered last."""
        return self.counts.get(_host(url), 0)

    def failed(self, url: str) -> None:
        """Record a request that failed with all its attempts."""
        with self.guard:
            self.counts[_host(url)] = self.counts.get(_host(url), 0) + 1

    def not_reached(self, url: str, reason: str) -> None:
        """Record that the host of `url` accepted no connection, in all attempts of a download."""
        with self.guard:
            self.gone[_host(url)] = reason

    def reason(self, url: str, most: int) -> str:
        """Return why nothing more is requested from the host of `url`: it was not reached, or it failed `most` requests
        in a row; "" if it is requested."""
        if reason := self.gone.get(_host(url), ""):
            return reason
        return f"{failed} requests to this host failed" if (failed := self.count(url)) >= most else ""

    def answered(self, url: str) -> None:
        """Record an answer."""
        if self.counts or self.gone:
            with self.guard:
                self.counts.pop(_host(url), None)
                self.gone.pop(_host(url), None)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
