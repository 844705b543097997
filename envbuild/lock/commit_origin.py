"""Where the commits of an image are written down: what a person is told of one whose tag was moved upstream."""

from __future__ import annotations

from pathlib import Path

from envbuild.core.yaml_nodes import shown
from envbuild.spec.recipe import Git, Recipe
from envbuild.spec.recipe_loader import option_fields, recipe_file
from envbuild.spec.resolve import Resolution


def commit_hints(resolution: Resolution) -> dict[str, str]:
    """File name of a commit's tarball → what to change for another commit: ``the commit in recipes/ucx.py:12:1``, or
    the options of its layer."""
    return {
        git.file: commit_hint(recipe, git)
        for recipe in resolution.recipes
        for git in resolution.sources[recipe.name].git
    }


def commit_hint(recipe: Recipe, git: Git) -> str:
    """What to change for another commit of one recipe's source. A spec may say it only where the recipe has the
    option."""
    keys = option_fields(type(recipe))
    asked = " and ".join(f"{key}:" for key in ("version", "commit") if key in keys)
    path = recipe_file(recipe)
    line = find_line(path, git.commit)
    if not line and getattr(recipe, "commit", "") == git.commit:
        return f"the commit under '{recipe.name}' in the spec"
    place = f"the commit in {shown(path)}{f':{line}:1' if line else ''}"
    return f"{place}, or write {asked} under '{recipe.name}' in the spec" if "commit" in keys else place


def find_line(path: Path, text: str) -> int:
    """The first line of a file that holds `text`, from 1; 0 where none does."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    return next((number for number, line in enumerate(lines, 1) if text in line), 0)
