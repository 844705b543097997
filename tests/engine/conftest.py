"""Fixtures of the engine tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envbuild.build.engines.buildah.engine import Buildah
from envbuild.build.engines.embedded import loop_device
from envbuild.core.store.store import Store
from tests.support.engine_fixtures import as_other, other_user, scratch, store

__all__ = ["as_other", "other_user", "scratch", "store"]


@pytest.fixture
def buildah_store(store: Store) -> Iterator[Store]:
    """Yield a store in which both engines work."""
    probe = Buildah().probe(store)
    if not probe.ok:
        pytest.skip(f"buildah does not work here: {probe.step}: {probe.reason}")
    yield store


@pytest.fixture
def no_loop_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel mount no file, as for a user and in most containers."""
    monkeypatch.setattr(loop_device, "CONTROL", "/nonexistent/loop-control")
