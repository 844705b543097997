"""A project with the shipped images, its locks refreshed to what the archive has today, and stores to build them in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.image_project import Cli

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of the shipped specs and locks; recipes and targets are the shipped ones."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "images", folder / "images")
    return folder


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one store for the session; set ENVBUILD_TEST_STORE to keep it (and its downloads) between runs."""
    kept = os.environ.get("ENVBUILD_TEST_STORE")
    return Path(kept) if kept else tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def refreshed(project: Path, store: Path) -> Callable[[str], Cli]:
    """Return the CLI after ``lock NAME --refresh``: security updates since the shipped lock must not fail a test."""
    done: set[str] = set()
    cli = Cli(project, store)

    def use(name: str) -> Cli:
        if name not in done:
            cli.run("lock", name, "--refresh")
            done.add(name)
        return cli

    return use
