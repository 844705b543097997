"""Places as a site writes them: addresses and folders, what is below them, and how messages show them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit


def local_path(place: str) -> Path | None:
    """The path of a folder or ``file:`` address; None for what is read over the network."""
    if "://" not in place:
        return Path(place)
    return Path(unquote(urlsplit(place).path)) if place.startswith("file://") else None


def join(place: str, path: str) -> str:
    """`path` (plain text) below `place` (an address or folder)."""
    path = quote(path, safe="/+~@:!,()") if "://" in place else path
    return f"{place.rstrip('/')}/{path.lstrip('/')}"


def redact(place: str) -> str:
    """An address as messages show it: without user name, password and query."""
    if "://" not in place:
        return place
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
