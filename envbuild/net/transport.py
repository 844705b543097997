"""Reading from addresses and folders alike, with a site's certificates and proxy. One connection pool a thread."""

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
DEFAULT_DELAY, MAX_DELAY = 0.5, 60.0  # seconds, for a place that has too much to do; at most, whatever it asks for
Answer = TypeVar("Answer")


class TransportError(Exception):
    """A place did not give what it was asked for: why in words, and as a `kind`. `hint` is a command that would help,
    where there is one."""

    def __init__(self, why: str, kind: MissKind, hint: str = "") -> None:
        super().__init__(why)
        self.kind = kind
        self.hint = hint

    def miss(self, place: str, more: str = "") -> Miss:
        """Return this as a miss of `place`, with `more` after the words."""
        return Miss(place, self.kind, f"{self}{more}", self.hint)


class NotFoundError(TransportError):
    """A place answered that it does not have it."""

    def __init__(self, why: str) -> None:
        super().__init__(why, MissKind.ABSENT)


class UnreachableError(TransportError):
    """A place did not answer, or not properly; trying again may help, after `wait` seconds."""

    def __init__(self, why: str, wait: float = 0.0, *, kind: MissKind = MissKind.UNREACHABLE, hint: str = "") -> None:
        super().__init__(why, kind, hint)
        self.wait = wait


class RefusedError(UnreachableError):
    """A place answered that it will not give it; trying again does not help."""

    def __init__(self, why: str, *, kind: MissKind = MissKind.REFUSED, hint: str = "") -> None:
        super().__init__(why, kind=kind, hint=hint)


@dataclass(frozen=True, slots=True)
class Page:
    """What was read: `url` after redirections (of a folder: its file address)."""

    url: str
    content: bytes
    kind: str = ""


@dataclass(slots=True)
class Transport:
    """Reads for one site. Safe to use from several threads."""

    settings: NetworkSettings
    own: threading.local = field(default_factory=threading.local)

    def session(self) -> requests.Session:
        """This thread's session."""
        import requests
        from requests.adapters import HTTPAdapter

        session: requests.Session | None = getattr(self.own, "session", None)
        if session is None:
            from envbuild import __version__

            session = requests.Session()
            # requests would prefer its own reading of CA variables to `verify`; the site's has been settled before.
            session.headers["User-Agent"] = f"envbuild/{__version__}"
            session.headers["Accept-Encoding"] = "identity"  # a .tar.gz must arrive as its own bytes
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(pool_maxsize=4))
            self.own.session = session
        return session

    def verify(self, url: str) -> bool | str:
        """What `requests` is to check the certificate of `url` against."""
        return urlsplit(url).hostname not in self.settings.insecure and (self.settings.certificates or True)

    def read(self, place: str, accept: str = "*/*", most: int = 0) -> Page:
        """All of a small file; `most`: the bytes that it may have (0: any number).

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

        def ask() -> Page:
            with self.get(place, {"Accept": accept, "Accept-Encoding": "gzip"}) as answer:
                content = read_limited(answer, most) if most else answer.content
                return Page(answer.url, content, answer.headers.get("Content-Type", ""))

        return retry(ask)

    @contextmanager
    def get(self, url: str, headers: dict[str, str] | None = None, method: str = "GET") -> Iterator[requests.Response]:
        """A streamed answer with a good status. Raises NotFoundError, UnreachableError, RefusedError;
        reading its body may raise OSError.
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
                # not the session's: the environment's would take precedence over those
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
        """Length in bytes; 0 when the place does not say."""
        path = local_path(place)
        try:
            if path is not None:
                return path.stat().st_size
            with self.get(place, method="HEAD") as answer:
                return int(answer.headers.get("Content-Length") or 0)
        except (OSError, NotFoundError, UnreachableError, ValueError):
            return 0

    def open(self, path: Path) -> IO[bytes]:
        """A file of a mirror that is a folder. Raises NotFoundError, RefusedError."""
        try:
            return path.open("rb")
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError("no such file") from None
        except OSError as error:
            raise RefusedError(os.strerror(error.errno or 0)) from None


def retry(ask: Callable[[], Answer], pause: float = 0) -> Answer:
    """What `ask` gives, in one of three tries, with `pause` seconds before the second one, twice that before the third.
    Raises NotFoundError and RefusedError at once, UnreachableError in the end; OSError, which
    reading a body raises, counts as such."""
    last: UnreachableError | None = None
    for attempt in range(TRIES):
        signals.pause(max(pause * attempt, last.wait if last else 0))
        try:
            return ask()
        except RefusedError:
            raise
        except UnreachableError as error:
            last = error
        except OSError as error:  # requests' own errors
            last = UnreachableError(describe_error(error))
    raise last or UnreachableError("no answer")


def retry_delay(header: str) -> float:
    """Seconds to wait, as ``Retry-After`` says (RFC 9110, 10.2.3; a date there is not looked at)."""
    return min(float(header), MAX_DELAY) if header.isdigit() and len(header) < 10 else DEFAULT_DELAY


def read_limited(answer: requests.Response, most: int) -> bytes:
    """The content of an answer, unpacked as it comes. Raises RefusedError when there is more of it than `most`."""
    content = b""
    for piece in answer.iter_content(1 << 16):
        content += piece
        if len(content) > most:
            raise RefusedError(f"it answers with more than {most} bytes")
    return content


def describe_error(error: BaseException) -> str:
    """A network error in a few words."""
    text = str(error)
    for pattern, words in (
        ("CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted (give ca_bundle in site.yaml)"),
        (
            "Name or service not known|Temporary failure in name resolution|NameResolutionError",
            "its name cannot be resolved",
        ),
        ("WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE", "no TLS is spoken there"),
        ("Connection refused", "connection refused"),
        ("timed out|Timeout", "no answer in time"),
        ("IncompleteRead|Connection broken|reset by peer|RemoteDisconnected", "the connection broke off"),
    ):
        if re.search(pattern, text):
            return words
    return re.sub(r"//[^/@\s]*@", "//", text)[:200] or type(error).__name__
