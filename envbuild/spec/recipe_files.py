"""Files that recipes read: patches, programs and data beside them, and the modules there that they import."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from envbuild.core.file_marks import FileMark, mark_files
from envbuild.spec.project import is_valid_name

WORD = re.compile(rb"\w+")
# A statement with ``import`` is a keyword with nothing behind it but names, dots, commas, brackets, "*", continued
# lines and comments. In comments and texts other words are found, too.
SPAN = re.compile(rb"\b(?:import|from)\b(?:[\w\s.,()*\\\x80-\xff]|#[^\n]*)*")
DATA = "data"
NEVER = {"__pycache__", ".git"}
RECIPE = re.compile(rb"^class\s[^\n]*\bRecipe\b", re.MULTILINE)


def files_beside(recipes: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that recipes may read: all beside them and in folders there that do not begin with a dot, but
    other recipes that they do not import; below data/ also those that do."""
    recipes = list(recipes)
    for folder in dict.fromkeys(path.parent for path in recipes):
        there = files_of(folder)
        beside = {path for path in there if path.parent != folder or path.suffix != ".py" or not is_recipe(path)}
        beside |= imported_recipes([path for path in recipes if path.parent == folder], beside, folder)
        yield from (path for path in sorted(beside) if path.is_file())


def files_of(folder: Path) -> list[Path]:
    """Return what is in a folder of recipes, and the files in folders there."""
    there = [path for path in folder.glob("[!.]*") if path.name not in NEVER]
    below = [file for path in there if path.is_dir() for file in walk_files(path)]
    return [*there, *(file for file in below if is_content(file.relative_to(folder).parts))]


def is_content(parts: Sequence[str]) -> bool:
    """Return whether a file in a folder of recipes counts, by the parts of its path; editors write hidden ones."""
    return not NEVER & set(parts) and (parts[0] == DATA or not any(part.startswith(".") for part in parts))


def imported_recipes(recipes: list[Path], beside: Iterable[Path], folder: Path) -> set[Path]:
    """Return the other recipes in a folder that recipes import, or files `beside` them: a recipe adds the folder to
    Python's path itself."""
    found, pending = set(recipes), [*recipes, *(path for path in beside if path.suffix == ".py" and path.is_file())]
    while pending:
        new = {folder / f"{name}.py" for name in imported_names(pending.pop(), {path.stem for path in found}, folder)}
        found |= new
        pending += new
    return found - set(recipes)


def imported_names(file: Path, known: set[str], folder: Path) -> set[str]:
    """Return the names of modules in a folder that a Python file imports, in any form (``recipes.name``, too), without
    those that are `known`; none of a file that is not Python."""
    text = file.read_bytes()
    if not may_import(text, known, folder):  # as of nearly all recipes
        return set()
    try:
        nodes = list(ast.walk(ast.parse(text)))  # the text of a program in a recipe has imports, too
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    statements = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    found = [alias.name for node in statements for alias in node.names]
    found += [node.module or "" for node in statements if isinstance(node, ast.ImportFrom)]
    return {part for name in found for part in name.split(".") if part not in known and is_module(part, folder)}


def may_import(text: bytes, known: set[str], folder: Path) -> bool:
    """Return whether a word in what can be a statement with ``import`` is a module of the folder that is not `known`:
    parsing all recipes takes as long as all the rest of a command that finds nothing to do. Python reads other letters
    (NFKC) and encodings (PEP 263) as the same names: such files are parsed."""
    spans = SPAN.findall(text)
    if not all(map(bytes.isascii, spans)) or any(b"coding" in line for line in text.split(b"\n", 2)[:2]):
        return True
    words = {word.decode() for span in spans for word in WORD.findall(span)}
    return any(is_module(word, folder) for word in words - known)


def is_module(name: str, folder: Path) -> bool:
    """Return whether a folder has the Python file of a module."""
    return os.path.isfile(f"{folder}/{name}.py")  # noqa: PTH113 - often called


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, also through links to folders, of which each is entered once."""
    seen = set[tuple[int, int]]()
    for place, folders, names in os.walk(folder, followlinks=True):
        try:
            status = Path(place).stat()
        except FileNotFoundError:  # removed meanwhile, as tools do with their caches
            continue
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
    """Return what changes when a file in a folder of recipes, or in a folder there, changes."""
    return mark_files(sorted(files_of(folder)))
