"""A project folder of a spec, with and without a repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.spec.dev_metadata import DevMetadata
from envbuild.spec.dev_project import DevProject
from tests.support.git_server import Repo

FILES = {
    "pyproject.toml": b'[project]\nname = "mine"\nversion = "1"\n',
    "src/mine/__init__.py": b"",
    ".gitignore": b"*.log\n",
}


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def make_repo(folder: Path) -> Repo:
    return Repo.make(folder / "mine", FILES)


def project(folder: Path) -> DevProject:
    """Return the folder as a spec names it."""
    return DevProject("mine", "../mine", folder, "x.yaml:1:1", DevMetadata("mine", "1"))


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)
