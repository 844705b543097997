"""The store is on a local disk with room, and the user may write there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..facts.place import COMPUTE, find_place, is_container
from ..facts.storage import amount, file_system
from ..host import Host
from ..model import MINOR, USER, Need, Result, failed, not_applicable, not_run, passed

GROUP = "storage"
ROOM = 20 << 30
PLACES = ("/local", "/scratch", "/localscratch", "/mnt", "/data", "/var/tmp")  # where clusters have local disks


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read the kind, the free space and the permissions of the store: that of the site, where envbuild passes it."""
    home = host.environ.get("XDG_CACHE_HOME") or host.environ.get("HOME", "/root") + "/.cache"
    path = host.environ.get("ENVBUILD_STORE") or f"{home}/envbuild"
    if is_container(host):
        yield not_applicable("the store is outside of this container")
        return
    if find_place(host)[0] == COMPUTE:
        yield not_applicable("a job reads its image, and needs no store of this node")
        return
    found = file_system(host, path) if host.is_real else None
    if found is None:
        yield not_run(f"{path} cannot be read")
    elif found.is_network:
        yield failed(
            f"{path} is on {found.kind}, which cannot hold a store",
            USER,
            f"{other_place(host, path)}; images themselves may be there",
        )
    elif not os.access(found.folder, os.W_OK | os.X_OK):
        yield failed(f"{path}: this user may not write in {found.folder}", MINOR, other_place(host, path))
    elif found.free < ROOM:
        fix = f"envbuild store gc; or: {other_place(host, path)}"
        yield failed(f"{amount(found.free)} free in {path}", MINOR, fix)
    else:
        private = found.folder == path and not is_open(path)
        note = "; other users cannot read it: publish or copy images for them" if private else ""
        yield passed(f"{path}: {found.kind}, {amount(found.free)} free{note}")


def other_place(host: Host, path: str) -> str:
    """Return the command that chooses a folder on a local disk of this machine with room, where there is one."""
    for folder in PLACES:
        found = file_system(host, folder) if folder != path and host.is_real else None
        usable = found is not None and found.folder == folder and not found.is_network and found.free >= ROOM
        if usable and os.access(folder, os.W_OK | os.X_OK):
            return f"export ENVBUILD_STORE={folder}/envbuild-{os.getuid()}"
    return f"export ENVBUILD_STORE=DIR, a folder on a local disk with {amount(ROOM)} free"


def is_open(path: str) -> bool:
    """Return whether other users may enter a folder and all above it."""
    folder = Path(path)
    return all(place.stat().st_mode & 0o001 for place in (folder, *folder.parents))
