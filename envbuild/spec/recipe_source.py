"""The code of a recipe file and of the modules beside it: compiled from its text each time, and compared with the names
that envbuild calls."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import _bootstrap_external
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType
from typing import Any

import envbuild
from envbuild.core.errors import SpecError
from envbuild.core.file_marks import FileMark
from envbuild.core.written_file import read_written
from envbuild.core.yaml_nodes import relative_path
from envbuild.spec.recipe import Recipe

INSTALLED = Path(envbuild.__file__).parent
RECIPES = "envbuild_recipes."  # names of the modules of recipes
FOLDERS = dict[Path, tuple[FileMark, ...]]()  # of recipes that were loaded, and what was in them
METHODS = frozenset(name for name, value in vars(Recipe).items() if callable(value) or isinstance(value, property))


class RecipeLoader(SourceFileLoader):
    """Loader of a recipe that reads only regular files of bounded size, and no bytecode (`compile_each_time`)."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        if Path(path).is_relative_to(INSTALLED):
            return super().get_code(fullname)
        code: CodeType = self.source_to_code(read_written(Path(path), relative_path(Path(path))), path)
        return code


def compile_each_time(folder: Path, marks: Sequence[FileMark]) -> None:
    """Make Python compile what recipes import from their folder, and import it again after a change of a file there:
    `marks` of `mark_folder`.

    Bytecode is valid for a time in whole seconds and a size, so a text that is changed twice in one second may be
    ignored; and the folder of a project is not envbuild's to write into. Installed recipes do not change."""
    folder = folder.absolute()
    if folder.is_relative_to(INSTALLED):
        return
    if not FOLDERS:
        _bootstrap_external.cache_from_source = bytecode_path  # type: ignore[assignment]
    before, FOLDERS[folder] = FOLDERS.get(folder), tuple(marks)
    if before in (None, tuple(marks)):
        return
    loaded = [(name, places_of(module)) for name, module in list(sys.modules.items()) if not name.startswith(RECIPES)]
    for name, places in loaded:  # found before: the place of a package is computed from that of the one above it
        if any(is_in_folder(place, (folder,)) for place in places):
            del sys.modules[name]


def bytecode_path(path: str, *arguments: Any, **options: Any) -> str:
    """Return the path of the bytecode of a Python file. Raises NotImplementedError for one beside a recipe: loaders
    then neither read nor write it, as on a Python without ``sys.implementation.cache_tag`` (importlib's `SourceLoader`;
    a finder of our own would not be used by ``spec_from_file_location``)."""
    if is_in_folder(path, FOLDERS):
        raise NotImplementedError(path)
    return cache_from_source(path, *arguments, **options)


def is_in_folder(path: str, folders: Iterable[Path]) -> bool:
    """Return whether a file or a folder is in one of folders, by its name or after links."""
    places = (os.path.abspath(path), os.path.realpath(path))  # noqa: PTH100 - of each module
    tops = {f"{top}/" for folder in folders for top in (str(folder), os.path.realpath(folder))}
    return any(f"{place}/".startswith(top) for place in places for top in tops)


def places_of(module: object) -> list[str]:
    """Return the file of a module, and the folders of a package, which has no file without ``__init__.py``."""
    values = getattr(module, "__dict__", {})  # an attribute that is missing may be computed: lazy modules import others
    found = [values.get("__file__"), *(values.get("__path__") or ())]
    return [place for place in found if isinstance(place, str)]


def check_names(kind: type[Recipe], path: Path) -> None:
    """Raise SpecError for a method whose name is almost one that envbuild calls: it would never be called, without an
    error."""
    known = {name for part in kind.__mro__[1:] for name in vars(part)}
    for name, value in vars(kind).items():
        function = getattr(value, "fget", value)
        if name.startswith("_") or name in known or not inspect.isfunction(function):
            continue
        possible = [item for item in METHODS if not item.startswith("_") and item not in vars(kind)]
        if close := difflib.get_close_matches(name, possible, 1, 0.8):
            line = function.__code__.co_firstlineno
            raise SpecError(
                f"class {kind.__name__} defines '{name}', which nothing calls",
                f"did you mean '{close[0]}'? A helper needs a less similar name, or one that begins with _",
                f"{relative_path(path)}:{line}:1",
            )
