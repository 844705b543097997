"""Places as a site lists them: addresses and folders, paths below them, and their form in messages."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from envbuild.core.text import without_logins

QUERY = re.compile(r"(\w://[^\s?`'\"<>]*)(?:\?[^\s`'\"<>)]*)?")  # takes each address whole: one pass, of any text
BARE_LOGIN = re.compile(r"[^/@\s]+:[^/]*@")
ADDRESS_IN_PATH = re.compile(r"(\b[a-z][a-z0-9+.-]*:/+).*@")  # a path has one slash of two
AUTHORITY = re.compile(r"[\w\-.~!$&'()*+,;=:@%\[\]]*")
PARTS = re.compile(r"([^/?#]*)([^?#]*)(.*)", re.DOTALL)


def local_path(place: str) -> Path | None:
    """Return the path of a folder or ``file:`` address; None for an address that is read over the network."""
    if "://" not in place:
        return Path(place)
    return Path(unquote(urlsplit(place).path)) if place.startswith("file://") else None


def join(place: str, path: str) -> str:
    """Return `path` (plain text) below `place` (an address or folder)."""
    path = quote(path, safe="/+~@:!,()") if "://" in place else path
    return f"{place.rstrip('/')}/{path.lstrip('/')}"


def has_one_host(url: str) -> bool:
    """Return whether all parsers of addresses find the same host in one that a server may have written. ``requests``
    takes a login of ~/.netrc for the host that `urllib.parse` finds, and connects to the one that `urllib3` finds:
    in ``http://evil\\@host/`` these are two. A host has no signs but those of RFC 3986, section 3.2, and letters."""
    from urllib3.exceptions import LocationParseError
    from urllib3.util import parse_url

    if not is_well_formed(url):
        return False
    found = urlsplit(url)
    try:
        connected = parse_url(url)
    except LocationParseError:
        return False
    host = (connected.host or "").strip("[]").lower()
    return not found.netloc.isascii() or (host == (found.hostname or "").lower() and found.port == connected.port)


def is_well_formed(url: str) -> bool:
    """Return whether the host of an address, its login and its port have the signs that they may have."""
    try:
        return bool(AUTHORITY.fullmatch(_split(url.partition("://")[2])[0])) and (urlsplit(url).port or 0) >= 0
    except ValueError:
        return False


def redact(place: str) -> str:
    """Return an address as messages show it: without user name, password and query; a path as it is."""
    scheme, mark, rest = place.partition("://")
    if not mark:  # pip takes an address without a scheme, and does not find the host
        return place.rpartition("@")[2] if has_bare_login(place) else place
    if has_raw_login(place):
        rest = rest.rpartition("@")[2]
    host, path, _ = _split(rest)
    return f"{scheme}://{host.rpartition('@')[2]}{path}"


def redact_reference(text: str) -> str:
    """Return the name of an image that a user wrote, as messages show it: without what may be a login before it."""
    name, mark, digest = text.partition("@sha256:")
    scheme, slashes, rest = name.rpartition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}{mark}{digest}"


def redact_text(text: str) -> str:
    """Return a text of a program or server without the logins and queries of the addresses in it."""
    return QUERY.sub(r"\1", without_logins(text))


def has_raw_login(place: str) -> bool:
    """Return whether an address has a login with signs that must be written as ``%2F``, and the like: what is read as
    its port is not a number, and an ``@`` follows."""
    host, path, query = _split(place.partition("://")[2])
    if "@" in host:
        return False
    name, colon, port = host.rpartition(":")
    return bool(colon) and not name.startswith("[") and not port.isdigit() and "@" in f"{path}{query}"


def may_have_login(place: str) -> bool:
    """Return whether an ``@`` that follows a port may be the end of a login: ``user:12/hush@HOST`` is read as the host
    ``user`` with the port 12. Where a user writes an address, it is refused; a server's may have such a path."""
    host, path, query = _split(place.partition("://")[2])
    name, colon, _ = host.rpartition(":")
    return "@" not in host and bool(colon) and not name.startswith("[") and "@" in f"{path}{query}"


def redact_written(place: str) -> str:
    """Return an address that a user wrote as messages show it: also without what may be a login, and without the login
    of one that lacks its scheme."""
    if "://" not in place:
        return place.rpartition("@")[2]
    if not may_have_login(place):
        return redact(place)
    scheme, _, rest = place.partition("://")
    return redact(f"{scheme}://{rest.rpartition('@')[2]}")


def has_bare_login(place: str) -> bool:
    """Return whether a place is an address with a password and without its scheme: ``user:hush@HOST/path``,
    ``//user:hush@HOST``, ``https//user:hush@HOST``."""
    if "://" in place:
        return False
    before, mark, _ = place.partition("@")
    return BARE_LOGIN.match(place) is not None or (bool(mark) and ":" in before.partition("//")[2])


def redact_file(file: str) -> str:
    """Return the path of a file that a user wrote as messages show it: an address in its place has no login."""
    return ADDRESS_IN_PATH.sub(r"\1", file)


def _split(rest: str) -> tuple[str, str, str]:
    """Return host (with login and port), path, and query with fragment of an address without its scheme."""
    found = PARTS.fullmatch(rest)
    assert found  # every text is one
    return found[1], found[2], found[3]
