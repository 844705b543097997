"""Failures of requests, as exceptions and in a few words."""

from __future__ import annotations

import re

from envbuild.core.text import printable
from envbuild.net.miss import Miss, MissKind


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


def describe_error(error: BaseException) -> str:
    """Return a network error in a few words, on one line."""
    text = str(error)
    for pattern, summary in (
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
    ):
        if re.search(pattern, text):
            return summary
    return printable(re.sub(r"//[^/@\s]*@", "//", text)[:200]) or type(error).__name__
