"""What the unit tests of specs share: a small project of their own, cut off from what ships with envbuild."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild import project
from envbuild.project import Project

HERE = Path(__file__).parent


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project in ``project/``; nothing is shipped beside it, so that texts do not change with every new recipe."""
    shipped = HERE / "project" / "shipped"
    monkeypatch.setattr(project, "SHIPPED", shipped)
    monkeypatch.setattr(project, "PACKAGE", shipped)
    return Project(HERE / "project")
