"""Logins of package archives: apt reads them from a file of their own (apt_auth.conf(5)).

apt prints the addresses of its sources, and misreads a login in them if the password contains ``/`` or ``@``. So the
addresses that it gets have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from envbuild.core.errors import InputError
from envbuild.net.urls import redact


def auth_text(places: Iterable[str]) -> str:
    """Return the text of auth.conf for the logins in the addresses of archives."""
    logins: dict[str, dict[str, tuple[str, str]]] = {}  # scheme and host → path → login
    for place in places:
        parts = urlsplit(place) if "://" in place else None
        if parts and parts.scheme != "file":
            machine = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
            login = (unquote(parts.username or ""), unquote(parts.password or ""))
            logins.setdefault(machine, {}).setdefault(parts.path, login)
    lines = []
    for machine, of in logins.items():
        # The whole host, which may redirect within itself; the paths only where they have different logins.
        paths = {"": next(iter(of.values()))} if len(set(of.values())) == 1 else of
        for path, (user, password) in sorted(paths.items(), reverse=True):  # the first entry that begins a path counts
            words = [f"machine {machine}{path}", *([f"login {user}"] if user else [])]
            words += [f"password {password}"] if password else []
            lines += [f"{' '.join(words)}\n"] if user or password else []
    return "".join(lines)


def check_logins(origin: str, places: Iterable[str]) -> None:
    """Raise InputError for a login that apt cannot read: a blank ends a word of auth.conf."""
    for place in places:
        parts = urlsplit(place) if "://" in place else None
        if parts and re.search(r"\s", unquote(f"{parts.username or ''}{parts.password or ''}")):
            raise InputError(
                f"apt cannot use the login of {redact(place)} for {origin}: it contains a blank",
                hint="use a login without blanks for this archive",
            )
