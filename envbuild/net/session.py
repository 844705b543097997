"""Sessions of `requests` that follow few redirects, and none from https to http."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

import requests
from requests.utils import select_proxy
from urllib3.exceptions import InsecureRequestWarning, SystemTimeWarning

from envbuild import __version__
from envbuild.net.answer_head import LimitedAdapter
from envbuild.net.body import discard_body
from envbuild.net.failures import RefusedError
from envbuild.net.limits import DownloadLimits
from envbuild.net.netrc_login import netrc_login
from envbuild.net.urls import has_one_host

# A certificate that is refused because of the clock is an error of its own, and `lock` reports the hosts that are not
# checked (`UncheckedHosts`); the warnings would name a file of urllib3.
for category in (SystemTimeWarning, InsecureRequestWarning):
    warnings.simplefilter("ignore", category)


def check_host(url: str) -> None:
    """Check that an address has one host (`has_one_host`). Raises InvalidURL."""
    if not has_one_host(url):
        raise requests.exceptions.InvalidURL("its host is ambiguous")


def find_login(url: str) -> tuple[bytes, bytes] | None:
    """Return user and password of an address, else those of ~/.netrc. A user without a password, as a token is, has
    the one of ~/.netrc or an empty one; `requests` would send none."""
    parts, known = urlsplit(url), find_netrc_login(url)
    user, password = unquote_to_bytes(parts.username or ""), unquote_to_bytes(parts.password or "")
    if not user and not password:
        return known
    return known if known and parts.password is None and user == known[0] else (user, password)


def find_netrc_login(url: str) -> tuple[bytes, bytes] | None:
    """Return the login of `netrc_login` in UTF-8, as git and curl send it: `requests` writes text in Latin-1."""
    found = netrc_login(url)
    return (found[0].encode(), found[1].encode()) if found else None


def send_no_login(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Leave a request without a login: `requests` would add one of ~/.netrc, for any scheme."""
    return request


class LimitedSession(requests.Session):
    """Session with the limits of a site. `check`: address → what `requests` calls ``verify``; `find_proxies`: address →
    its proxies, None: those of the environment."""

    def __init__(
        self,
        limits: DownloadLimits,
        check: Callable[[str], bool | str],
        find_proxies: Callable[[str], dict[str, str] | None],
    ) -> None:
        super().__init__()
        self.check, self.find_proxies = check, find_proxies
        self.limits, self.max_redirects = limits, limits.redirects
        self.headers["User-Agent"] = f"envbuild/{__version__}"
        self.headers["Accept-Encoding"] = "identity"  # a .tar.gz must arrive as its own bytes
        for scheme in ("http://", "https://"):
            self.mount(scheme, LimitedAdapter(limits.grace, pool_maxsize=4))

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        """Prepare a request, with the login of its address, else of ~/.netrc, unless the session or the request has one
        of its own. Raises InvalidURL for an address whose host is another one for another parser."""
        url = str(request.url)
        check_host(url)
        if request.auth is None and self.auth is None:
            request.auth = find_login(url) or send_no_login
        return super().prepare_request(request)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send one request of a chain of redirects; the certificate of each host is checked as the site requires it for
        that host. Raises RefusedError for a proxy without a host, for which `requests` has a TypeError."""
        options["verify"] = self.check(request.url or "")
        proxy = select_proxy(request.url or "", options.get("proxies"))
        if proxy and not urlsplit(proxy if "//" in proxy else f"//{proxy}").hostname:
            raise RefusedError("the address of the proxy has no host: see proxy in site.yaml, and HTTPS_PROXY")
        return super().send(request, **options)

    def rebuild_proxies(
        self, prepared_request: requests.PreparedRequest, proxies: Mapping[str, str] | None
    ) -> MutableMapping[str, str]:
        """Return the proxies of a request that an answer redirects: those for its own host."""
        own = self.find_proxies(prepared_request.url or "")
        found: MutableMapping[str, str] = super().rebuild_proxies(prepared_request, own)  # type: ignore[no-untyped-call]
        return found

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Remove the login from a request that goes to another host. `requests` would add one of ~/.netrc for that
        host, which a server chooses: it could name what only this user may read. A site's own host gets it when it
        redirects from http to https."""
        url, headers = prepared_request.url or "", prepared_request.headers
        if self.should_strip_auth(response.request.url, url):  # type: ignore[no-untyped-call]
            headers.pop("Authorization", None)
        elif self.auth is None and "Authorization" not in headers and not response.history:  # the first redirect
            prepared_request.prepare_auth(find_netrc_login(url) or send_no_login)

    def get_redirect_target(self, response: requests.Response) -> str | None:
        """Return the address that an answer redirects to; None for any other answer.

        Raises RefusedError for a malformed one, and for one without https behind one with it: any machine on the way
        could change the rest.
        """
        target: str | None = super().get_redirect_target(response)
        if target is None:
            return None
        discard_body(response, self.limits)  # requests would read all of it
        try:
            following = urljoin(response.url, target)
            check_host(following)
            schemes = urlsplit(response.url).scheme, urlsplit(following).scheme
        except ValueError:  # InvalidURL is one
            response.close()
            raise RefusedError("it redirects to a malformed address") from None
        if schemes == ("https", "http"):
            response.close()
            raise RefusedError("it redirects from https to http")
        return target
