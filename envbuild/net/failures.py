"""Failures of requests, as exceptions and in a few words."""

from __future__ import annotations

import os
import re

from envbuild.core.text import printable
from envbuild.net.miss import Miss, MissKind

CAUSES = 10  # of one error: exceptions in each other
ADDRESS = re.compile("[/?&=%@#]")  # in a word: it may be a part of an address
SUMMARIES = (
    ("BadStatusLine", "its answer is not HTTP"),  # whose text may repeat the request, with its login
    ("certificate is not yet valid", "its certificate is not valid yet (check the clock of this machine: date)"),
    ("certificate has expired", "its certificate has expired (check the clock of this machine: date)"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted (set ca_bundle in site.yaml)"),
    (
        "Name or service not known|Temporary failure in name resolution|NameResolutionError",
        "its name cannot be resolved",
    ),
    ("WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE", "the server does not use TLS"),
    ("Connection refused", "connection refused"),
    ("around a piece of content has more", "its answer continues without content"),
    ("timed out|Timeout", "no answer in time"),
    ("IncompleteRead|Connection broken|reset by peer|RemoteDisconnected", "the connection broke off"),
)


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
    """A place did not answer, or not properly; a retry after `wait` seconds may help. `connected`: whether its host was
    reached at all."""

    def __init__(
        self,
        reason: str,
        wait: float = 0.0,
        *,
        kind: MissKind = MissKind.UNREACHABLE,
        hint: str = "",
        connected: bool = True,
    ) -> None:
        super().__init__(reason, kind, hint)
        self.wait = wait
        self.connected = connected


class RefusedError(UnreachableError):
    """A place refused a request; a retry does not help."""

    def __init__(self, reason: str, *, kind: MissKind = MissKind.REFUSED, hint: str = "") -> None:
        super().__init__(reason, kind=kind, hint=hint)


class TooLongError(RefusedError):
    """A place has more bytes than the reader accepts."""


def describe_error(error: BaseException) -> str:
    """Return a network error in a few words, on one line."""
    if isinstance(error, TransportError):
        return str(error)  # described already
    return summarize(str(error)) or find_reason(error) or type(error).__name__


def summarize(text: str) -> str:
    """Return the text of an error of requests, urllib3 or git in a few words; empty for one that is not known."""
    if tunnel := re.search(r"Tunnel connection failed: (\d{3})", text):  # its phrase is the proxy's: any text
        return f"the proxy answers HTTP {tunnel[1]}"
    for pattern, summary in SUMMARIES:
        if re.search(pattern, text):
            return summary
    return ""


def find_reason(error: BaseException) -> str:
    """Return the text of an error, or of the one of the system below it, without any address.

    requests repeats the address that it was redirected to, which may have a signature that opens a file to everybody.
    """
    for _ in range(CAUSES):
        if isinstance(error, OSError) and error.errno:
            return _system_reason(error, error.errno)
        below = (getattr(error, "reason", None), *error.args, error.__cause__, error.__context__)
        following = next((item for item in below if isinstance(item, BaseException)), None)
        if following is None:
            break
        error = following
    words = [word for word in str(error).split() if not ADDRESS.search(word)]
    return printable(" ".join(words)[:200])


def _system_reason(error: OSError, number: int) -> str:
    """Return the text of an error of the system, of a name's resolution or of TLS, whose numbers are their own."""
    import socket
    import ssl

    if isinstance(error, ssl.SSLError):
        if isinstance(error, ssl.SSLEOFError):
            return "the connection broke off"
        reason = (getattr(error, "reason", "") or "unknown reason").lower().replace("_", " ")
        return printable(f"TLS failed: {reason}"[:200])
    if isinstance(error, (socket.gaierror, socket.herror)):
        return "its name cannot be resolved"
    return os.strerror(number)
