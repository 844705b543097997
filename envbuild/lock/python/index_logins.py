"""Logins of package indexes, for uv: in its environment, which only the same user and root can read.

Arguments of a process are visible to every user of the machine, and addresses reach messages and files. uv reads the
login of the index NAME from ``UV_INDEX_NAME_USERNAME`` and ``UV_INDEX_NAME_PASSWORD`` (uv documentation, "Package
indexes: Providing credentials directly"); pages of links have no name, so all of them go into ``UV_FIND_LINKS``.

uv reads ~/.netrc by itself, too, for each host that an index names or redirects to, over http as well. So it does not
where the network chooses what an index answers: then it has the logins of the indexes alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from envbuild.net.netrc_login import is_open, netrc_login
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.urls import local_path


@dataclass(frozen=True, slots=True)
class IndexLogins:
    """The variables of one run of uv, added while its options are made. `settings`: the hosts without a check of their
    certificate."""

    settings: NetworkSettings
    environment: dict[str, str] = field(default_factory=dict)

    def address(self, name: str, url: str) -> str:
        """Return the address of the index `name` without its login, which becomes a part of the environment."""
        login = self._find(url)
        if not login:
            return url
        parts, key = urlsplit(url), name.upper().replace("-", "_")
        self.environment[f"UV_INDEX_{key}_USERNAME"] = login[0]
        if login[1] is not None:  # else uv may have one in a keyring
            self.environment[f"UV_INDEX_{key}_PASSWORD"] = login[1]
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    def option(self, name: str, url: str) -> str:
        """Return an index as the value of an option; it has a name only if it has a login."""
        return f"{name}={self.address(name, url)}" if self._find(url) else url

    def links(self, places: Sequence[str]) -> list[str]:
        """Return the options for folders and pages with links: none if one has a login."""
        logins = {place: self._find(place) for place in places}
        if any(logins.values()):
            urls = (_link(place, login) for place, login in logins.items())
            self.environment["UV_FIND_LINKS"] = ",".join(url.replace(",", "%2C") for url in urls)
            return []
        return [word for place in places for word in ("--find-links", place)]

    def _find(self, place: str) -> tuple[str, str | None] | None:
        """Return user and password for an address: its own, else those of ~/.netrc; None for a folder, too."""
        if local_path(place) is not None:
            return None
        if self._is_unsure(place):
            self.environment["NETRC"] = os.devnull
        parts = urlsplit(place)
        if "@" in parts.netloc:
            return unquote(parts.username or ""), None if parts.password is None else unquote(parts.password)
        return netrc_login(place)

    def _is_unsure(self, place: str) -> bool:
        """Return whether a machine on the way to an index can answer for it."""
        try:
            return is_open(place) or self.settings.is_insecure(place)
        except ValueError:  # a malformed port, which uv reports
            return True


def _link(place: str, login: tuple[str, str | None] | None) -> str:
    """Return a folder or page of links as an address, with its login."""
    parts = urlsplit(place if "://" in place else Path(place).absolute().as_uri())
    if login is None or "@" in parts.netloc:
        return parts.geturl()
    user, password = (quote(word or "", safe="") for word in login)
    return parts._replace(netloc=f"{user}:{password}@{parts.netloc}").geturl()
