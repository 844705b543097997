"""Fixtures: a registry, and what locking an image against it takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
from envbuild.lock.base_image.lock_base import LockedBase, lock_base
from envbuild.net.download import Transfer
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support.local_registry import PASSWORD, USER, Layout, Lock, Server, htpasswd, serve
from tests.support.registry_fixtures import no_logins as no_logins
from tests.support.registry_fixtures import registry as registry


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Server]:
    """Yield a registry that wants the login USER with PASSWORD."""
    with serve(tmp_path / "private", htpasswd(tmp_path / "private"), f"{USER}:{PASSWORD}") as server:
        yield server


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


@pytest.fixture
def lock(store: Store) -> Lock:
    """`lock_base` with a site whose ``oci:docker.io/`` is at `place`."""

    def run(reference: str, place: str = "", **changes: Any) -> LockedBase:
        mirrors = {"oci:docker.io/": (place,)} if place else {}
        site = changes.pop("site", None) or Site(store.root, mirrors=mirrors)
        transport = Transport(site.network())
        transfer = Transfer(transport, store, pause=0.01)
        values: dict[str, Any] = {"previous": None, "distribution": "debian:13", "python": "3.13", "promised": ()}
        arch = changes.pop("arch", "amd64")
        return lock_base(reference, arch, site, transport, transfer, store, SilentReporter(), **(values | changes))

    return run
