"""Reading of addresses and of folders, with a site's certificates and proxy. One connection pool per thread."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from envbuild.core import signals
from envbuild.net.miss import Miss, MissKind
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.urls import local_path

if TYPE_CHECKING:
    import requests

CONNECT_TIMEOUT, READ_TIMEOUT = 20, 120  # seconds without a connection, without a byte
TRIES = 3
DEFAULT_DELAY, MAX_DELAY = 0.5, 60.0  # seconds before a retry without Retry-After; the limit with it
Answer = TypeVar("Answer")


class TransportError(Exception):
    """A place did not answer a request. The text is the reason, `kind` the same as a value; `hint` is a command that
    would help, if one exists."""

    def __init__(self, reason: str, kind: MissKind, hint: str = "") -> None:
        super().__init__(reason)
        self.kind = kind
        self.hint = hint

    def miss(self, place: str, more: str = "") -> Miss:
        """Return this as a miss of `place`, with `more` after the reason."""
        return Miss(place, self.kind, f"{self}{more}", self.hint)


class NotFoundError(TransportError):
    """A place answered that it does not have the file."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, MissKind.ABSENT)


class UnreachableError(TransportError):
    """A place did not answer, or not properly; a retry after `wait` seconds may help."""

    def __init__(
        self, reason: str, wait: float = 0.0, *, kind: MissKind = MissKind.UNREACHABLE, hint: str = ""
    ) -> None:
        super().__init__(reason, kind, hint)
        self.wait = wait


class RefusedError(UnreachableError):
    """A place refused a request; a retry does not help."""

    def __init__(self, reason: str, *, kind: MissKind = MissKind.REFUSED, hint: str = "") -> None:
        super().__init__(reason, kind=kind, hint=hint)


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

    def session(self) -> requests.Session:
        """Return this thread's session."""
        import requests
        from requests.adapters import HTTPAdapter

        session: requests.Session | None = getattr(self.local, "session", None)
        if session is None:
            from envbuild import __version__

            session = requests.Session()
            # requests would prefer its own reading of CA variables to `verify`; `Site.certificates` has read them
            # already.
            session.headers["User-Agent"] = f"envbuild/{__version__}"
            session.headers["Accept-Encoding"] = "identity"  # a .tar.gz must arrive as its own bytes
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(pool_maxsize=4))
            self.local.session = session
        return session

    def verify(self, url: str) -> bool | str:
        """Return the CA bundle with which `requests` checks the certificate of `url`; False: not at all."""
        return urlsplit(url).hostname not in self.settings.insecure and (self.settings.certificates or True)

    def read(self, place: str, accept: str = "*/*", limit: int = 0) -> Page:
        """Return a small file; `limit`: the bytes that it may have (0: any number).

        Raises NotFoundError, UnreachableError,
        RefusedError."""
        path = local_path(place)
        if path is not None:
            try:
                return Page(place, path.read_bytes())
            except (FileNotFoundError, NotADirectoryError):
                raise NotFoundError("no such file") from None
            except OSError as error:
                raise RefusedError(os.strerror(error.errno or 0)) from None

        def request() -> Page:
            with self.get(place, {"Accept": accept, "Accept-Encoding": "gzip"}) as answer:
                content = read_limited(answer, limit) if limit else answer.content
                return Page(answer.url, content, answer.headers.get("Content-Type", ""))

        return retry(request)

    @contextmanager
    def get(self, url: str, headers: dict[str, str] | None = None, method: str = "GET") -> Iterator[requests.Response]:
        """Yield a streamed answer with a status below 400, or 416. Raises NotFoundError, UnreachableError,
        RefusedError; reading its body may raise OSError.
        """
        import requests

        session, proxy = self.session(), self.settings.proxy
        try:
            answer = session.request(
                method,
                url,
                headers=headers,
                stream=True,
                timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
                verify=self.verify(url),
                # not the session's: those of the environment would take precedence
                proxies={"http": proxy, "https": proxy} if proxy else None,
                allow_redirects=True,
            )
        except requests.exceptions.SSLError as error:
            raise RefusedError(describe_error(error)) from None
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema):
            raise RefusedError("not an address") from None
        except OSError as error:  # RequestException is one
            raise UnreachableError(describe_error(error)) from None
        with answer:
            status = answer.status_code
            if status in (404, 410):
                raise NotFoundError(f"HTTP {status}")
            if status in (408, 425, 429) or status >= 500:
                kind = MissKind.RATE_LIMITED if status == 429 else MissKind.UNREACHABLE
                raise UnreachableError(f"HTTP {status}", retry_delay(answer.headers.get("Retry-After", "")), kind=kind)
            if status >= 400 and status != 416:
                raise RefusedError(f"HTTP {status}", kind=MissKind.UNAUTHORIZED if status == 401 else MissKind.REFUSED)
            yield answer

    def size(self, place: str) -> int:
        """Return the length in bytes; 0 when the place does not report it."""
        path = local_path(place)
        try:
            if path is not None:
                return path.stat().st_size
            with self.get(place, method="HEAD") as answer:
                return int(answer.headers.get("Content-Length") or 0)
        except (OSError, NotFoundError, UnreachableError, ValueError):
            return 0

    def open(self, path: Path) -> IO[bytes]:
        """Open a file of a mirror that is a folder. Raises NotFoundError, RefusedError."""
        try:
            return path.open("rb")
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError("no such file") from None
        except OSError as error:
            raise RefusedError(os.strerror(error.errno or 0)) from None


def retry(request: Callable[[], Answer], pause: float = 0) -> Answer:
    """Return the result of `request`, called up to three times: `pause` seconds before the second, twice that before
    the third.

    Raises NotFoundError and RefusedError at once, UnreachableError in the end; OSError, which
    reading a body raises, counts as such."""
    last: UnreachableError | None = None
    for attempt in range(TRIES):
        signals.pause(max(pause * attempt, last.wait if last else 0))
        try:
            return request()
        except RefusedError:
            raise
        except UnreachableError as error:
            last = error
        except OSError as error:  # requests' own errors
            last = UnreachableError(describe_error(error))
    raise last or UnreachableError("no answer")


def retry_delay(header: str) -> float:
    """Return the seconds to wait that ``Retry-After`` specifies (RFC 9110, 10.2.3; a date there is ignored)."""
    return min(float(header), MAX_DELAY) if header.isdigit() and len(header) < 10 else DEFAULT_DELAY


def read_limited(answer: requests.Response, limit: int) -> bytes:
    """Return the content of an answer, decompressed as it is received.

    Raises RefusedError when it has more than `limit` bytes.
    """
    content = b""
    for chunk in answer.iter_content(1 << 16):
        content += chunk
        if len(content) > limit:
            raise RefusedError(f"the answer has more than {limit} bytes")
    return content


def describe_error(error: BaseException) -> str:
    """Return a network error in a few words."""
    text = str(error)
    for pattern, summary in (
        ("CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted (set ca_bundle in site.yaml)"),
        (
            "Name or service not known|Temporary failure in name resolution|NameResolutionError",
            "its name cannot be resolved",
        ),
        ("WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE", "the server does not use TLS"),
        ("Connection refused", "connection refused"),
        ("timed out|Timeout", "no answer in time"),
        ("IncompleteRead|Connection broken|reset by peer|RemoteDisconnected", "the connection broke off"),
    ):
        if re.search(pattern, text):
            return summary
    return re.sub(r"//[^/@\s]*@", "//", text)[:200] or type(error).__name__
