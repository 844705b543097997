"""Places as a site lists them: addresses and folders, paths below them, and their form in messages."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit


def local_path(place: str) -> Path | None:
    """Return the path of a folder or ``file:`` address; None for an address that is read over the network."""
    if "://" not in place:
        return Path(place)
    return Path(unquote(urlsplit(place).path)) if place.startswith("file://") else None


def join(place: str, path: str) -> str:
    """Return `path` (plain text) below `place` (an address or folder)."""
    path = quote(path, safe="/+~@:!,()") if "://" in place else path
    return f"{place.rstrip('/')}/{path.lstrip('/')}"


def redact(place: str) -> str:
    """Return an address as messages show it: without user name, password and query."""
    if "://" not in place:
        return place
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
