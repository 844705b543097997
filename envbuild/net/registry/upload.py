"""Calls that write to a registry (OCI distribution spec 1.1, "Push"), with its answers to errors in words."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

from envbuild.core import signals
from envbuild.core.json_text import json_value
from envbuild.core.text import printable
from envbuild.net.body import read_body
from envbuild.net.failures import RefusedError, UnreachableError, describe_error
from envbuild.net.header_number import header_number
from envbuild.net.hidden_logins import header_words, hide_words
from envbuild.net.lanes import Lanes
from envbuild.net.miss import MissKind
from envbuild.net.registry.client import LONGEST_REQUESTED, RegistryTransport
from envbuild.net.transport import BUSY

TRIES = 5  # of a request that may succeed later
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between them; each pause is about twice the one before
MAX_ANSWER = 1 << 20  # bytes of an answer; errors are short JSON documents
Answer = TypeVar("Answer")


class RegistryRefusal(RefusedError):
    """A registry refused a request. `status`: HTTP's; `codes`: of the distribution spec (``DENIED``)."""

    def __init__(self, status: int, codes: tuple[str, ...], why: str) -> None:
        kind = MissKind.UNAUTHORIZED if status in (401, 403) else MissKind.REFUSED
        super().__init__(f"HTTP {status}{f': {why}' if why else ''}", kind=kind)
        self.status, self.codes = status, codes


@dataclass(frozen=True, slots=True)
class RegistryAnswer:
    """An answer below 400: `headers` in any case, `url` after redirects, `content` of a small body."""

    status: int
    url: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def location(self) -> str:
        """The address for the next request of an upload, which may be relative and has parameters to preserve.

        Raises RefusedError for one that is malformed, or without https behind one with it: image and login would be
        readable on the way.
        """
        try:
            found = urljoin(self.url, self.headers.get("Location", ""))
            schemes = urlsplit(self.url).scheme, urlsplit(found).scheme
        except ValueError:
            raise RefusedError("it names a malformed address for an upload") from None
        if schemes[1] not in ("http", "https") or schemes == ("https", "http"):
            raise RefusedError("it names an address without https for an upload")
        return found

    @property
    def smallest_chunk(self) -> int:
        """The bytes that each chunk of an upload must have, but the last (``OCI-Chunk-Min-Length``); 0: any."""
        value = self.headers.get("OCI-Chunk-Min-Length", "")
        return header_number(value) or 0


def send(
    transport: RegistryTransport,
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    body: io.RawIOBase | bytes | None = None,
) -> RegistryAnswer:
    """Send one request. A file is sent from its begin to its end, with the length in `headers`, which registries
    require.

    Raises RegistryRefusal for an answer that a repetition does not change, UnreachableError for one that it may change
    and without an answer.
    """
    from urllib3.exceptions import HTTPError

    session = transport.session()
    try:
        answer = session.request(
            method,
            url,
            headers=dict(headers or {}),
            data=body,
            stream=True,
            timeout=(transport.limits.connect, transport.limits.silence),
            proxies=transport.settings.proxies(url),
            allow_redirects=method in ("GET", "HEAD"),
        )
        with answer:
            # an answer to HEAD has the length of a body that does not come
            content = (
                b"" if method == "HEAD" else b"".join(read_body(answer, MAX_ANSWER, transport.limits, decode=True))
            )
    except RefusedError:
        raise
    except ValueError:  # of `http.client` and urllib3 (``a..b``), and InvalidURL of requests
        raise RefusedError("it names a malformed address") from None
    except (HTTPError, OSError) as error:  # RequestException is one
        raise UnreachableError(describe_error(error)) from None
    status = answer.status_code
    if status in BUSY or status >= 500:
        kind = MissKind.RATE_LIMITED if status == 429 else MissKind.UNREACHABLE
        raise UnreachableError(f"HTTP {status}", requested_pause(answer.headers.get("Retry-After", "")), kind=kind)
    if status >= 300:
        known = transport.login.known.values() if transport.login else ()
        codes, why = read_errors(content, {word for header in known for word in header_words(header)})
        raise RegistryRefusal(status, codes, why)
    return RegistryAnswer(status, answer.url, answer.headers, content)


def read_errors(content: bytes, secrets: Iterable[str] = ()) -> tuple[tuple[str, ...], str]:
    """Return (codes, text) of the errors in an answer (distribution spec, "Error Codes"), without `secrets`; proxies
    answer otherwise."""
    try:
        listed: list[dict[str, Any]] = json_value(content)["errors"]
        codes = tuple(str(item.get("code", "")) for item in listed)
        texts = [f"{item.get('code', '')} {item.get('message', '')}".strip() for item in listed]
    except (ValueError, LookupError, TypeError, AttributeError):
        return (), ""
    return codes, printable(hide_words("; ".join(texts), secrets)[:300])


def requested_pause(header: str) -> float:
    """Return the seconds that ``Retry-After`` requests (RFC 9110, 10.2.3); 0 for none, and for a date."""
    return min(float(header_number(header) or 0), LONGEST_REQUESTED)


def persist(request: Callable[[], Answer], pause: float = FIRST_PAUSE, lanes: Lanes | None = None) -> Answer:
    """Return the result of `request`, which is called up to five times while it raises UnreachableError.

    pause: seconds before the second call. lanes: those of parallel requests, half of which rest when the registry has
    too many. Raises RefusedError at once, UnreachableError in the end.
    """
    for attempt in range(TRIES):
        try:
            return request()
        except RefusedError:
            raise
        except UnreachableError as error:
            if attempt == TRIES - 1:
                raise
            # Not all clients of a busy registry return at the same moment.
            wait = min(pause * 2**attempt, LONGEST_PAUSE) * random.uniform(0.5, 1)
            with resting(lanes, error):
                signals.pause(max(wait, error.wait))
    raise AssertionError("unreachable")


def resting(lanes: Lanes | None, error: UnreachableError) -> AbstractContextManager[None]:
    """Return the context of a pause after an error: others continue, but fewer at a time if the server is busy."""
    return lanes.rest() if lanes and error.kind is MissKind.RATE_LIMITED else nullcontext()
