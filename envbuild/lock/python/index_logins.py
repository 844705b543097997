"""Logins of package indexes, for uv: in its environment, which only the same user and root can read.

Arguments of a process are visible to every user of the machine, and addresses reach messages and files. uv reads the
login of the index NAME from ``UV_INDEX_NAME_USERNAME`` and ``UV_INDEX_NAME_PASSWORD`` (uv documentation, "Package
indexes: Providing credentials directly"); pages of links have no name, so all of them go into ``UV_FIND_LINKS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class IndexLogins:
    """The variables of one run of uv, added while its options are made."""

    environment: dict[str, str] = field(default_factory=dict)

    def address(self, name: str, url: str) -> str:
        """Return the address of the index `name` without its login, which becomes a part of the environment."""
        if not has_login(url):
            return url
        parts, key = urlsplit(url), name.upper().replace("-", "_")
        self.environment[f"UV_INDEX_{key}_USERNAME"] = unquote(parts.username or "")
        if parts.password is not None:
            self.environment[f"UV_INDEX_{key}_PASSWORD"] = unquote(parts.password)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    def option(self, name: str, url: str) -> str:
        """Return an index as the value of an option; it has a name only if it has a login."""
        return f"{name}={self.address(name, url)}" if has_login(url) else url

    def links(self, places: Sequence[str]) -> list[str]:
        """Return the options for folders and pages with links: none if one has a login."""
        if any(map(has_login, places)):
            urls = (place if "://" in place else Path(place).absolute().as_uri() for place in places)
            self.environment["UV_FIND_LINKS"] = ",".join(url.replace(",", "%2C") for url in urls)
            return []
        return [word for place in places for word in ("--find-links", place)]


def has_login(place: str) -> bool:
    """Return whether an address has a user's name or a password."""
    return "://" in place and "@" in urlsplit(place).netloc
