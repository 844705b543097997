"""The repositories that this user's store has sent blobs to: a registry copies a blob from one to another by itself.

published/<host>.json of the user's part of the store: blob → repository, the newest last. The registry decides; a wrong
entry costs nothing. Beside them, the configuration of the image that this user last published under a tag.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from envbuild.core.store.json_files import read_sealed, write_sealed
from envbuild.core.store.store import Store
from envbuild.net.registry.client import RegistryAddress

MOST = 20_000  # blobs of a registry in the record: 3 MB
MOST_TAGS = 1000
FOLDER = "published"
ALONE = "squashfs"  # in place of a configuration: the image was published as its squashfs file alone


def read_repositories(store: Store, at: RegistryAddress) -> dict[str, str]:
    """Return digest (hex) → repository, of blobs in a registry."""
    return _read(store, at, "blobs")


def read_tag(store: Store, at: RegistryAddress, tag: str) -> str:
    """Return the configuration (``sha256:…``) of the image that this user last published under a tag, or ALONE; empty
    if that is not known."""
    return _read(store, at, "tags").get(f"{at.repository}:{tag}", "")


def _read(store: Store, at: RegistryAddress, key: str) -> dict[str, str]:
    value = read_sealed(record_path(store, at))
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        return {}
    return {str(name): text for name, text in found.items() if isinstance(text, str)}


def record_repository(
    store: Store, at: RegistryAddress, digests: Iterable[str], tag: str = "", configuration: str = ""
) -> None:
    """Record that a repository has blobs (hex), and what is published under a tag (as `read_tag`); in a store that
    cannot be written nothing is recorded."""
    with contextlib.suppress(OSError):
        store.own_folder(FOLDER)
        known = read_repositories(store, at)
        new = dict.fromkeys(digests, at.repository)
        items = [*((digest, name) for digest, name in known.items() if digest not in new), *new.items()]
        tags = _read(store, at, "tags")
        if tag:
            tags.pop(name := f"{at.repository}:{tag}", None)
            tags |= {name: configuration} if configuration else {}
        value = {"blobs": dict(items[-MOST:]), "tags": dict([*tags.items()][-MOST_TAGS:])}
        write_sealed(record_path(store, at), value)


def record_path(store: Store, at: RegistryAddress) -> Path:
    """Return the file for a registry."""
    host = re.sub(r"[^A-Za-z0-9.-]", "_", at.url.partition("://")[2])
    return store.own / FOLDER / f"{host[:200]}.json"
