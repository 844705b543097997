"""Projects that belong to several users, for tests of what another user's files may decide."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from envbuild.core.errors import SpecError
from envbuild.spec.project import Project
from tests.support.as_user import run_as

ROOT, ANNE, BOB = 0, 61001, 61002
ANNES, BOBS, TEAM = 61001, 61002, 61003  # groups
USERS = {"root": (ROOT, 0, ()), "anne": (ANNE, ANNES, (TEAM,))}
RECIPE = '''"""A thing."""
from dataclasses import dataclass
from pathlib import Path

from envbuild.sdk import Recipe

Path({marker!r}).touch()


@dataclass(frozen=True, kw_only=True)
class Thing(Recipe):
    """A thing."""
'''


def make_project(folder: Path, owner: int = ROOT, group: int = 0, mode: int = 0o755) -> Path:
    """Make a project of one recipe, an image and a site file; `mode` is the one of folders."""
    root = folder / "project"
    files = {
        "recipes/thing.py": RECIPE.format(marker=str(folder / "ran")),
        "images/mine.yaml": "schema: 1\ndescription: x\ntarget: cpu\nbase: debian:13\nlayers: {thing: {}}\n",
        "site.yaml": f"schema: 1\nstore: {folder}/store\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for path in (root, *root.rglob("*")):
        os.chown(path, owner, group)
        path.chmod(mode if path.is_dir() else mode & ~0o111)
    return root


def refusals(root: Path) -> list[tuple[str, str]]:
    """Return the paths, relative to the project, and messages of a refusal; none if the project is used."""
    try:
        assert Project.find(root).root == root
    except SpecError as error:
        assert error.exit_code == 2
        return [(os.path.relpath(item.where, root), item.message) for item in error.findings]
    return []


def as_user(name: str, function: Callable[[], list[tuple[str, str]]]) -> list[tuple[str, str]]:
    return run_as(*USERS[name], function)
