"""Network settings of a site: the part of it that a transport needs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

PORTS = {"https": 443, "http": 80}
LOOPBACK = ("localhost", "127.0.0.1", "127.0.0.0/8", "::1", "[::1]")  # in the forms that curl, uv and apt read


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

    `proxy` is used for every download (empty: that of the environment), `insecure` are hosts (``HOST`` or ``HOST
    PORT``) whose certificate is not checked, `certificates` is the CA bundle (a file or folder) of the others (empty:
    the program's own). `unchecked`: those of `insecure` that got a request."""

    proxy: str = ""
    insecure: frozenset[str] = frozenset()
    certificates: str = ""
    unchecked: UncheckedHosts = field(default_factory=UncheckedHosts, compare=False)

    def is_insecure(self, url: str) -> bool:
        """Return whether the certificate of the host of an address is not checked. Raises ValueError for a malformed
        port."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)
        return not self.insecure.isdisjoint((host, host_and_port(host, port)))

    def proxies(self, url: str) -> dict[str, str] | None:
        """Return the proxies of one request, for `requests`; None: those of the environment.

        This machine is never reached through a proxy: requests to it are not encrypted. Nor are the hosts of NO_PROXY.
        """
        from requests.utils import should_bypass_proxies

        if is_loopback(urlsplit(url).hostname or "") or (self.proxy and should_bypass_proxies(url, no_proxy=None)):
            return {"http": "", "https": ""}  # None would leave those of ALL_PROXY (requests, merge_setting)
        return {"http": self.proxy, "https": self.proxy} if self.proxy else None


def direct_hosts(*places: str) -> dict[str, str]:
    """Return the variables by which uv, git and apt do what `NetworkSettings.proxies` does: no proxy for this machine,
    nor for the hosts of NO_PROXY, of which apt reads the variable in lower case alone. `places`: those that are used;
    apt, and curl before 7.86, read no networks."""
    own = ",".join(filter(None, (os.environ.get("no_proxy"), os.environ.get("NO_PROXY"))))
    hosts = [host.strip() for host in own.split(",")]
    for place in places:
        with contextlib.suppress(ValueError):  # a malformed one
            hosts += [host] if is_loopback(host := urlsplit(place).hostname or "") else []
    value = "*" if "*" in hosts else ",".join(dict.fromkeys(filter(None, (*hosts, *LOOPBACK))))  # "*" counts alone
    return {"no_proxy": value, "NO_PROXY": value}


def host_names(texts: Iterable[str]) -> frozenset[str]:
    """Return hosts as `NetworkSettings.insecure` has them, of texts as ``trusted-host`` of pip has them."""
    names = set()
    for text in texts:
        parts = urlsplit(f"//{text}")
        with contextlib.suppress(ValueError):  # a port that is not a number
            names.add(host_and_port(parts.hostname or "", parts.port))
    return frozenset(names - {""})


def host_and_port(host: str, port: int | None) -> str:
    """Return one text for a host and its port; None: for any port."""
    return host if port is None else f"{host} {port}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its name or address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_own_network(host: str) -> bool:
    """Return whether only this machine, or one on the same cable, reaches a host: a service there may answer it without
    a login, such as that of a cloud with the machine's metadata."""
    return is_loopback(host) or any(
        one.is_loopback or one.is_link_local or one.is_unspecified for one in _resolve(host)
    )


def _resolve(host: str) -> Iterator[IPv4Address | IPv6Address]:
    """Yield the addresses of a host; none if its name is not known here."""
    import socket

    with contextlib.suppress(OSError, UnicodeError):
        for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            found = ip_address(str(address[0]).partition("%")[0])
            yield getattr(found, "ipv4_mapped", None) or found
