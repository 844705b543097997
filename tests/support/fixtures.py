"""Fixtures of unit tests: a small project of their own, separate from what ships with envbuild; a store; a key
that signs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from envbuild.spec import project
from envbuild.spec.project import Project
from tests.support.debian_archive import Signer, signer

HERE = Path(__file__).parent


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return the project in ``project/``; nothing is shipped beside it: texts do not change with new recipes."""
    shipped = HERE / "project" / "shipped"
    monkeypatch.setattr(project, "SHIPPED", shipped)
    monkeypatch.setattr(project, "PACKAGE", shipped)
    return Project(HERE / "project")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


@pytest.fixture(scope="session")
def key() -> Iterator[Signer]:
    with signer() as made:
        yield made
