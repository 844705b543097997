"""The store is on a local disk with room, and the user may write there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..facts.place import is_container
from ..facts.storage import amount, file_system
from ..host import Host
from ..model import MINOR, USER, Need, Result, failed, not_run, passed

GROUP = "storage"
ROOM = 20 << 30


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read the kind, the free space and the permissions of the store: that of the site, where envbuild passes it."""
    home = host.environ.get("XDG_CACHE_HOME") or host.environ.get("HOME", "/root") + "/.cache"
    path = host.environ.get("ENVBUILD_STORE") or f"{home}/envbuild"
    if is_container(host):
        yield not_run("the store is outside of this container")
        return
    found = file_system(host, path) if host.is_real else None
    if found is None:
        yield not_run(f"{path} cannot be read")
    elif found.is_network:
        yield failed(
            f"{path} is on {found.kind}, which cannot hold a store",
            USER,
            "export ENVBUILD_STORE=/local/envbuild; images themselves may be there",
        )
    elif not os.access(found.folder, os.W_OK | os.X_OK):
        yield failed(
            f"{path}: this user may not write in {found.folder}", MINOR, "export ENVBUILD_STORE=/local/envbuild"
        )
    elif found.free < ROOM:
        yield failed(
            f"{amount(found.free)} free in {path}",
            MINOR,
            "envbuild store gc, or: export ENVBUILD_STORE=/local/envbuild",
        )
    else:
        private = found.folder == path and not is_open(path)
        note = "; other users cannot read it: publish or copy images for them" if private else ""
        yield passed(f"{path}: {found.kind}, {amount(found.free)} free{note}")


def is_open(path: str) -> bool:
    """Return whether other users may enter a folder and all above it."""
    folder = Path(path)
    return all(place.stat().st_mode & 0o001 for place in (folder, *folder.parents))
