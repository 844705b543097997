"""Logins of ~/.netrc: the one place that decides where they are sent, for requests, git and uv.

The file names hosts and no schemes, so a server, or any machine on the way to one without https, could name another
host of it over http and read its login there. Over https it could name a private file of the user, which would be taken
for its own: no host of a redirect gets a login (`envbuild.net.session`).
"""

from __future__ import annotations

import netrc
import os
from pathlib import Path
from urllib.parse import urlsplit

from envbuild.net.network_settings import is_loopback


def netrc_login(url: str) -> tuple[str, str] | None:
    """Return user and password for an address, of ~/.netrc or the file that NETRC names; None over http, but for this
    machine."""
    return None if is_open(url) else _find_login(url)


def has_netrc_login(url: str) -> bool:
    """Return whether ~/.netrc has a login for the host of an address, which may not be sent there."""
    return _find_login(url) is not None


def all_netrc_logins() -> list[tuple[str, str]]:
    """Return user and password of each host in ~/.netrc or the file that NETRC names; none if it cannot be read."""
    try:
        hosts = netrc.netrc(os.environ.get("NETRC") or str(Path("~/.netrc").expanduser())).hosts
    except (OSError, RuntimeError, netrc.NetrcParseError, UnicodeDecodeError):  # RuntimeError: without a home folder
        return []
    return [(user, password) for user, _, password in hosts.values()]


def is_open(url: str) -> bool:
    """Return whether a request is not encrypted on its way to another machine."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not is_loopback(parts.hostname or "")


def _find_login(url: str) -> tuple[str, str] | None:
    from requests.utils import get_netrc_auth

    return get_netrc_auth(url)
