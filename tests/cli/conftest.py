"""Fixtures of the tests of commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.command import ROOT


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with the specs and locks of the shipped images."""
    shutil.copytree(ROOT / "images", tmp_path / "project" / "images")
    return tmp_path / "project"
