"""The place where the user changes a commit of an image: part of the error for a tag that was moved upstream."""

from __future__ import annotations

from pathlib import Path

from envbuild.core.yaml_nodes import relative_path
from envbuild.spec.recipe import Git, Recipe
from envbuild.spec.recipe_loader import option_fields, recipe_file
from envbuild.spec.resolve import Resolution


def commit_hints(resolution: Resolution) -> dict[str, str]:
    """Return the file name of a commit's tarball → what to change for another commit: ``the commit in
    recipes/ucx.py:12:1``, or the options of its layer."""
    return {
        git.file: commit_hint(recipe, git)
        for recipe in resolution.recipes
        for git in resolution.sources[recipe.name].git
    }


def commit_hint(recipe: Recipe, git: Git) -> str:
    """Return what to change for another commit of one recipe's source: the spec if the recipe has the option, else the
    recipe."""
    keys = option_fields(type(recipe))
    options = " and ".join(f"{key}:" for key in ("version", "commit") if key in keys)
    path = recipe_file(recipe)
    line = find_line(path, git.commit)
    if not line and getattr(recipe, "commit", "") == git.commit:
        return f"the commit under '{recipe.name}' in the spec"
    place = f"the commit in {relative_path(path)}{f':{line}:1' if line else ''}"
    return f"{place}, or write {options} under '{recipe.name}' in the spec" if "commit" in keys else place


def find_line(path: Path, text: str) -> int:
    """Return the number of the first line of a file with `text`, from 1; 0 if there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    return next((number for number, line in enumerate(lines, 1) if text in line), 0)
