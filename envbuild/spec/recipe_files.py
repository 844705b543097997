"""Files that recipes read: patches, programs and data beside them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from envbuild.core.file_marks import FileMark, mark_files
from envbuild.spec.project import is_valid_name

RECIPE = re.compile(rb"^class\s[^\n]*\bRecipe\b", re.MULTILINE)


def files_beside(recipes: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that recipes may read: below data/, and all beside them that do not begin with a dot, but other
    recipes."""
    for folder in dict.fromkeys(path.parent for path in recipes):
        beside = [path for path in folder.glob("[!.]*") if path.suffix != ".py" or not is_recipe(path)]
        beside += walk_files(folder / "data")
        yield from (path for path in sorted(beside) if path.is_file() and "__pycache__" not in path.parts)


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, also through links to folders, of which each is entered once."""
    seen = set[tuple[int, int]]()
    for place, folders, names in os.walk(folder, followlinks=True):
        status = Path(place).stat()
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        yield from (Path(place, name) for name in names)


def is_recipe(path: Path) -> bool:
    """Return whether a Python file beside a recipe defines one, instead of being a program that a recipe reads."""
    return is_valid_name(path.stem) and path.is_file() and bool(RECIPE.search(path.read_bytes()))


def mark_folder(folder: Path) -> list[FileMark]:
    """Return what changes when a file in a folder of recipes, or below its data/, changes."""
    return mark_files(sorted([*folder.glob("[!.]*"), *walk_files(folder / "data")]))
