"""Sessions of `requests` that follow few redirects, and none from https to http."""

from __future__ import annotations

import warnings
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import SystemTimeWarning

from envbuild import __version__
from envbuild.net.body import discard_body
from envbuild.net.failures import RefusedError
from envbuild.net.limits import DownloadLimits

# A certificate that is refused because of the clock is an error of its own; the warning would name a file of urllib3.
warnings.simplefilter("ignore", SystemTimeWarning)


class LimitedSession(requests.Session):
    """Session with the limits of a site."""

    def __init__(self, limits: DownloadLimits) -> None:
        super().__init__()
        self.limits, self.max_redirects = limits, limits.redirects
        self.headers["User-Agent"] = f"envbuild/{__version__}"
        self.headers["Accept-Encoding"] = "identity"  # a .tar.gz must arrive as its own bytes
        for scheme in ("http://", "https://"):
            self.mount(scheme, HTTPAdapter(pool_maxsize=4))

    def get_redirect_target(self, response: requests.Response) -> str | None:
        """Return the address that an answer redirects to; None for any other answer.

        Raises RefusedError for one without https behind one with it: any machine on the way could change the rest.
        """
        target: str | None = super().get_redirect_target(response)
        if target is None:
            return None
        discard_body(response, self.limits)  # requests would read all of it
        if urlsplit(response.url).scheme == "https" and urlsplit(urljoin(response.url, target)).scheme == "http":
            response.close()
            raise RefusedError("it redirects from https to http")
        return target
