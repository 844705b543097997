"""Reading of addresses and of folders, with a site's certificates and proxy. One connection pool per thread."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from envbuild.core import signals
from envbuild.core.judged_links import ForeignLinkError, MovedFileError, open_judged
from envbuild.core.ownership import own_users
from envbuild.core.regular_file import NotRegularError
from envbuild.net.body import read_body
from envbuild.net.failures import NotFoundError, RefusedError, TooLongError, UnreachableError, describe_error
from envbuild.net.header_number import header_number
from envbuild.net.limits import LIMITS, DownloadLimits, HostFailures
from envbuild.net.miss import MissKind
from envbuild.net.netrc_login import has_netrc_login
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.urls import local_path

if TYPE_CHECKING:
    import requests

TRIES = 3
BUSY = (408, 425, 429)  # answers of a server that may do better later
DEFAULT_DELAY = 0.5  # seconds before a retry without Retry-After
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Page:
    """A small file that was read: `url` after redirections (of a folder: its file address)."""

    url: str
    content: bytes
    kind: str = ""


@dataclass(slots=True)
class Transport:
    """A reader for one site. Safe to use from several threads."""

    settings: NetworkSettings
    local: threading.local = field(default_factory=threading.local)
    limits: DownloadLimits = LIMITS
    failures: HostFailures = field(default_factory=HostFailures)
    tries: int = TRIES

    def session(self) -> requests.Session:
        """Return this thread's session."""
        session: requests.Session | None = getattr(self.local, "session", None)
        if session is None:
            from envbuild.net.session import LimitedSession

            # requests would prefer its own reading of CA variables to `verify`; `Site.certificates` has read them
            # already.
            session = LimitedSession(self.limits, self.verify, self.settings.proxies)
            self.local.session = session
        return session

    def verify(self, url: str) -> bool | str:
        """Return the CA bundle with which `requests` checks the certificate of `url`; False: not at all."""
        parts = urlsplit(url)
        if not self.settings.is_insecure(url):
            return self.settings.certificates or True
        if parts.scheme == "https" and parts.hostname:
            self.settings.unchecked.add(parts.hostname)
        return False

    def read(self, place: str, accept: str = "*/*", limit: int | None = None) -> Page:
        """Return a small file; `limit`: the bytes that it may have (None: those of a page).

        Raises NotFoundError, UnreachableError, RefusedError.
        """
        path, limit = local_path(place), self.limits.page if limit is None else limit
        if path is not None:
            with self.open(path) as file:
                content = file.read(limit + 1)
            if len(content) > limit:
                raise TooLongError(f"it has more than {limit} bytes")
            return Page(place, content)

        def request() -> Page:
            with self.get(place, {"Accept": accept, "Accept-Encoding": "gzip"}) as answer:
                content = b"".join(read_body(answer, limit, self.limits, decode=True))
                return Page(answer.url, content, answer.headers.get("Content-Type", ""))

        self.check_host(place)
        try:
            return retry(request, tries=self.tries)
        except RefusedError:
            raise
        except UnreachableError:
            self.failures.failed(place)
            raise

    def check_host(self, place: str) -> None:
        """Raise RefusedError for an address of a host that a download did not reach, or that failed too many requests
        in a row."""
        if reason := self.failures.reason(place, self.limits.failures):
            raise RefusedError(f"given up, because {reason}", kind=MissKind.UNREACHABLE)

    @contextmanager
    def get(self, url: str, headers: dict[str, str] | None = None, method: str = "GET") -> Iterator[requests.Response]:
        """Yield a streamed answer with a status below 400, or 416. Raises NotFoundError, UnreachableError,
        RefusedError; reading its body may raise OSError.
        """
        import requests
        from urllib3.exceptions import HTTPError

        session = self.session()
        try:
            answer = session.request(
                method,
                url,
                headers=headers,
                stream=True,
                timeout=(self.limits.connect, self.limits.silence),
                # not the session's: those of the environment would take precedence
                proxies=self.settings.proxies(url),
                allow_redirects=True,
            )
        except requests.exceptions.SSLError as error:
            raise RefusedError(describe_error(error)) from None
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema):
            raise RefusedError("not an address") from None
        except requests.exceptions.TooManyRedirects:
            raise RefusedError(f"it redirects more than {self.limits.redirects} times") from None
        except OSError as error:  # RequestException is one
            raise UnreachableError(describe_error(error), connected=is_connected(error)) from None
        except (ValueError, HTTPError):  # of `http.client` and urllib3, for hosts such as ``a..b``
            raise RefusedError("it is, or redirects to, a malformed address") from None
        with answer:
            status = answer.status_code
            if 400 <= status < 500 and status not in BUSY:
                self.failures.answered(url)
            if status in (404, 410):
                raise NotFoundError(f"HTTP {status}")
            if status in BUSY or status >= 500:
                kind = MissKind.RATE_LIMITED if status == 429 else MissKind.UNREACHABLE
                raise UnreachableError(
                    f"HTTP {status}",
                    retry_delay(answer.headers.get("Retry-After", ""), self.limits.retry_after),
                    kind=kind,
                )
            if status == 401:
                raise RefusedError(f"HTTP 401{describe_unsent_login(answer)}", kind=MissKind.UNAUTHORIZED)
            if status >= 400 and status != 416:
                raise RefusedError(f"HTTP {status}")
            yield answer
            self.failures.answered(url)  # not at its head: a body that ends early does not count

    def size(self, place: str) -> int:
        """Return the length in bytes; 0 when the place does not report it."""
        path = local_path(place)
        try:
            if path is not None:
                return path.stat().st_size
            with self.get(place, method="HEAD") as answer:
                return header_number(answer.headers.get("Content-Length", "")) or 0
        except (OSError, NotFoundError, UnreachableError):
            return 0

    def open(self, path: Path) -> IO[bytes]:
        """Open a file of a mirror that is a folder. Raises NotFoundError, RefusedError.

        Another user may be able to write the folder, and could lead to a private file, which would get into the store.
        """
        try:
            return open_judged(path, own_users())
        except ForeignLinkError:
            raise RefusedError("a link of another user leads to it, and it is not that user's") from None
        except MovedFileError as error:
            reason = f"{error.filename} {error.strerror}, and others cannot read the file: it may have been moved there"
            raise RefusedError(f"{reason}; if it belongs there: chmod go+r FILE") from None
        except NotRegularError:
            raise RefusedError("not a regular file") from None
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError("no such file") from None
        except OSError as error:
            raise RefusedError(os.strerror(error.errno or errno.EIO)) from None


def describe_unsent_login(answer: requests.Response) -> str:
    """Return why a request had no login although ~/.netrc has one for its host; empty for any other."""
    if "Authorization" in answer.request.headers or not has_netrc_login(answer.url):
        return ""
    where = "where an address redirects to" if answer.history else "without https"
    return f" (the login of ~/.netrc for it is not sent {where})"


def is_connected(error: OSError) -> bool:
    """Return whether the host had accepted a connection before a request failed."""
    import requests
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

    if not isinstance(error, requests.exceptions.ConnectionError) or not error.args:
        return True
    return not isinstance(getattr(error.args[0], "reason", None), (NewConnectionError, ConnectTimeoutError))


def retry(request: Callable[[], Answer], pause: float = 0, tries: int = TRIES) -> Answer:
    """Return the result of `request`, called up to `tries` times: `pause` seconds before the second, twice that before
    the third; longer after an answer that the server is busy.

    Raises NotFoundError and RefusedError at once, UnreachableError in the end; OSError, which
    reading a body raises, counts as such."""
    last: UnreachableError | None = None
    for attempt in range(tries):
        wait = last.wait if last else 0.0
        if wait <= DEFAULT_DELAY:  # it requested none
            wait *= 2 ** (attempt - 1)
        signals.pause(max(pause * attempt, wait))
        try:
            return request()
        except RefusedError:
            raise
        except UnreachableError as error:
            last = error
        except OSError as error:  # requests' own errors
            last = UnreachableError(describe_error(error))
    raise last or UnreachableError("no answer")


def retry_delay(header: str, most: float = LIMITS.retry_after) -> float:
    """Return the seconds to wait that ``Retry-After`` specifies (RFC 9110, 10.2.3; a date there is ignored)."""
    seconds = header_number(header)
    return DEFAULT_DELAY if seconds is None else min(float(seconds), most)
