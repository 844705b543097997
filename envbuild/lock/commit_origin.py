"""The places where the user changes a commit of an image, and its submodules: parts of the errors of sources."""

from __future__ import annotations

import re
from pathlib import Path

from envbuild.core.yaml_nodes import relative_path
from envbuild.lock.git.commit_hint import CommitHint
from envbuild.spec.recipe import Git, Recipe
from envbuild.spec.recipe_calls import recipe_file
from envbuild.spec.recipe_options import option_fields
from envbuild.spec.resolve import Resolution

# Lines of a recipe that state a source, from the most to the least exact.
SOURCE_LINES = (r"\bsubmodules\b.*[=:(]", r"\bGit\(", r"\brepository\b", r"\bclass ")


def commit_hints(resolution: Resolution) -> dict[str, CommitHint]:
    """Return the file name of a commit's tarball → what to change for another commit (``the commit in
    recipes/ucx.py:12:1``, or the options of its layer), and the place of the source in its recipe."""
    return {
        git.file: CommitHint(commit_hint(recipe, git), source_place(recipe_file(recipe)))
        for recipe in resolution.recipes
        for git in resolution.sources[recipe.name].git
    }


def commit_hint(recipe: Recipe, git: Git) -> str:
    """Return what to change for another commit of one recipe's source: the spec if the recipe has the option, else the
    recipe."""
    keys = option_fields(type(recipe))
    options = " and ".join(f"{key}:" for key in ("version", "commit") if key in keys)
    path = recipe_file(recipe)
    line = find_line(path, re.escape(git.commit))
    if not line and getattr(recipe, "commit", "") == git.commit:
        return f"the commit under '{recipe.name}' in the spec"
    place = f"the commit in {relative_path(path)}{f':{line}:1' if line else ''}"
    return f"{place}, or write {options} under '{recipe.name}' in the spec" if "commit" in keys else place


def source_place(path: Path) -> str:
    """Return the place in a recipe that states its source: ``recipes/ucx.py:12:1``."""
    line = next(filter(None, (find_line(path, pattern) for pattern in SOURCE_LINES)), 1)
    return f"{relative_path(path)}:{line}:1"


def find_line(path: Path, pattern: str) -> int:
    """Return the number of the first line of a file that matches a regular expression, from 1; 0 if there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    return next((number for number, line in enumerate(lines, 1) if re.search(pattern, line)), 0)
