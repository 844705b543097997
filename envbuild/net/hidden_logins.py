"""Logins in texts of servers: apt, uv, git and registries print what a server writes, and it may repeat what it got, in
plain text or as the header of a request. Who reads a log need not know it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote
from urllib.request import getproxies

from envbuild.net.netrc_login import all_netrc_logins

LOGIN = re.compile(r"(?:[^:/?#]*://)?([^/?#]*)@")  # a proxy may lack its scheme
MASK = "***"
SHORT = 6  # characters: a shorter login can be a part of other words, so it is replaced as a whole word alone
TOKEN = 20  # characters of a user's name that is one


def hide_logins(text: str, addresses: Iterable[str]) -> str:
    """Return a text without the logins of these addresses, of the proxies of the environment and of ~/.netrc."""
    logins = [*all_netrc_logins()]
    words: set[str] = set()
    for address in (*addresses, *getproxies().values()):
        found = LOGIN.match(address)  # urlsplit would raise an error for a malformed host
        if found and (login := found[1]):
            user, _, password = login.partition(":")
            logins.append((unquote(user), unquote(password)))
            words.add(login)
    words |= {word for user, password in logins for word in login_words(user, password)}
    return hide_words(text, words)


def hide_words(text: str, words: Iterable[str]) -> str:
    """Return a text without some words, the longest first."""
    for word in sorted(filter(None, words), key=len, reverse=True):
        form = re.escape(word)
        text = re.sub(form if len(word) >= SHORT else rf"(?<!\w){form}(?!\w)", MASK, text)
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
