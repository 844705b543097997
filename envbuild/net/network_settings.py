"""Network settings of a site: the part of it that a transport needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit


@dataclass(slots=True)
class UncheckedHosts:
    """The hosts that got a request without a check of their certificate.

    report: gets one sentence for each, with the first request
    """

    names: set[str] = field(default_factory=set)
    report: Callable[[str], object] = lambda text: None

    def add(self, host: str) -> None:
        """Report a host, once."""
        if host not in self.names:
            self.names.add(host)
            self.report(
                f"the certificate of {host} is not checked (insecure_hosts of site.yaml, or trusted-host of pip): what "
                "is not compared with a digest is what the network answers"
            )


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Settings of all downloads.

    `proxy` is used for every download (empty: that of the environment), `insecure` are hosts whose certificate is
    not checked, `certificates` is the CA bundle (a file or folder) of the others (empty: the program's own).
    `unchecked`: those of `insecure` that got a request."""

    proxy: str = ""
    insecure: frozenset[str] = frozenset()
    certificates: str = ""
    unchecked: UncheckedHosts = field(default_factory=UncheckedHosts, compare=False)

    def proxies(self, url: str) -> dict[str, Any] | None:
        """Return the proxies of one request, for `requests`; None: those of the environment.

        This machine is never reached through a proxy: requests to it are not encrypted. Nor are the hosts of NO_PROXY.
        """
        from requests.utils import should_bypass_proxies

        if is_loopback(urlsplit(url).hostname or "") or (self.proxy and should_bypass_proxies(url, no_proxy=None)):
            return {"http": None, "https": None}
        return {"http": self.proxy, "https": self.proxy} if self.proxy else None


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its name or address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
