"""Projects and folders that tests of trust share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.spec import trust
from tests.support.as_user import open_folder


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder that every user can enter, in an environment that trusts nothing."""
    for name in ("ENVBUILD_TRUST", "SUDO_UID", "SUDO_GID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(trust, "_granted", [])
    with open_folder() as made:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(made / "config"))
        yield made
