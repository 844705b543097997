"""The cache of uv in the store: one for each way in which a site reads its indexes. What the network answered for a
host without a check of its certificate must not count where it is checked.

uv uses an answer as long as the index states, which may be for ever. So ``lock --refresh``, ``--fresh`` and
``--upgrade`` begin another cache: with `--refresh` of uv, an index could confirm what another one answered.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from envbuild.core.folder_removal import discard_folder
from envbuild.core.store.store import Store
from envbuild.net.limits import LIMITS
from envbuild.net.network_settings import NetworkSettings


def uv_cache(store: Store, settings: NetworkSettings, *, fresh: bool) -> Path:
    """Return the folder of uv's cache; `fresh`: without anything that is cached so far."""
    parts = sorted(settings.insecure), settings.certificates, settings.proxy
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    with store.lock(f"uv-{key}"):
        folder = store.own_folder("uv") / key
        folder.mkdir(exist_ok=True)
        numbers = sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
        if time.time() - folder.stat().st_mtime > LIMITS.program:  # no run of uv uses an older one
            for number in numbers[:-1]:
                discard_folder(folder / str(number))
        current = folder / str((numbers or [0])[-1] + fresh)
        current.mkdir(exist_ok=True)
    return current
