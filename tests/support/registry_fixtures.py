"""Fixtures of tests that start a registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_registry import Server, serve


@pytest.fixture(autouse=True)
def no_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logins of the user who runs the tests are not used."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("NETRC", "/dev/null")
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ENROOT_CONFIG_PATH", str(tmp_path / "enroot"))


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Server]:
    """Yield a registry that requires no login."""
    with serve(tmp_path / "registry") as server:
        yield server
