"""Logins in texts of servers: apt, uv, git and registries print what a server writes, and it may repeat what it got, in
plain text or as the header of a request. Who reads a log need not know it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies

from envbuild.net.netrc_login import all_netrc_logins

MASK = "***"
SHORTEST = 6  # characters of a text that is replaced: shorter ones are parts of other words
TOKEN = 20  # characters of a user's name that is one


def hide_logins(text: str, addresses: Iterable[str]) -> str:
    """Return a text without the logins of these addresses, of the proxies of the environment and of ~/.netrc."""
    logins = [*all_netrc_logins()]
    words: set[str] = set()
    for address in (*addresses, *getproxies().values()):
        login, mark, _ = urlsplit(address).netloc.rpartition("@") if "://" in address else ("", "", "")
        if mark:
            user, _, password = login.partition(":")
            logins.append((unquote(user), unquote(password)))
            words.add(login)
    words |= {word for user, password in logins for word in login_words(user, password)}
    return hide_words(text, words)


def hide_words(text: str, words: Iterable[str]) -> str:
    """Return a text without some words, the longest first."""
    for word in sorted(words, key=len, reverse=True):
        if len(word) >= SHORTEST:
            text = text.replace(word, MASK)
    return text


def login_words(user: str, password: str) -> Iterator[str]:
    """Yield the forms of a login in which a server gets it, or a reader could use it."""
    pair = f"{user}:{password}"
    yield pair
    for encoding in ("utf-8", "latin-1"):
        yield from _paddings(base64.b64encode(pair.encode(encoding, "replace")).decode())
    for secret in (password, user if not password or len(user) >= TOKEN else ""):
        yield secret
        yield quote(secret, safe="")


def header_words(header: str) -> Iterator[str]:
    """Yield the forms of the login in an Authorization header."""
    kind, _, value = header.partition(" ")
    yield from _paddings(value)
    if kind == "Basic":
        user, _, password = base64.b64decode(value).decode(errors="replace").partition(":")
        yield from login_words(user, password)


def _paddings(encoded: str) -> tuple[str, str]:
    return encoded, encoded.rstrip("=")
