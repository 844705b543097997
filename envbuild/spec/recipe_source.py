"""The code of a recipe file and of the modules beside it: compiled from its text each time, and compared with the names
that envbuild calls."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType

import envbuild
from envbuild.core.errors import SpecError
from envbuild.core.written_file import read_written
from envbuild.core.yaml_nodes import relative_path
from envbuild.spec.recipe import Recipe

INSTALLED = Path(envbuild.__file__).parent
RECIPES = "envbuild_recipes."  # names of the modules of recipes
FOLDERS = set[Path]()  # of recipes that were loaded
METHODS = frozenset(name for name, value in vars(Recipe).items() if callable(value) or isinstance(value, property))


class RecipeLoader(SourceFileLoader):
    """Loader of a recipe that neither reads nor writes ``__pycache__``, and that reads only regular files of bounded
    size.

    Bytecode is valid for a time in whole seconds and a size, so a text that is changed twice in one second may be
    ignored; and the folder of a project is not envbuild's to write into. Installed recipes do not change."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        if Path(path).is_relative_to(INSTALLED):
            return super().get_code(fullname)
        code: CodeType = self.source_to_code(read_written(Path(path), relative_path(Path(path))), path)
        return code


def compile_modules(folder: Path) -> None:
    """Make Python compile what is imported from a folder of recipes, or from a package in it, as `RecipeLoader` does,
    and again for each recipe that is loaded: a file there may have changed since."""
    folder = folder.absolute()
    if folder.is_relative_to(INSTALLED):
        return
    if not FOLDERS:
        sys.path_hooks.insert(0, find_in_folder)
    places = {folder, folder.resolve()}
    if not places <= FOLDERS:
        FOLDERS.update(places)
        for name in [name for name in sys.path_importer_cache if is_of_recipes(name)]:
            del sys.path_importer_cache[name]
    tops = tuple(f"{place}{os.sep}" for place in places)
    for name, module in list(sys.modules.items()):
        if not name.startswith(RECIPES) and any(place.startswith(tops) for place in places_of(module)):
            del sys.modules[name]


def places_of(module: object) -> list[str]:
    """Return the file of a module, and the folders of a package, which has no file without ``__init__.py``."""
    values = getattr(module, "__dict__", {})  # an attribute that is missing may be computed: lazy modules import others
    found = [values.get("__file__"), *(values.get("__path__") or ())]
    return [place for place in found if isinstance(place, str)]


def is_of_recipes(name: str) -> bool:
    """Return whether a folder on Python's path is one of recipes, or in one."""
    return any(Path(name).absolute().is_relative_to(folder) for folder in FOLDERS)


def find_in_folder(name: str) -> FileFinder:
    """Return what finds the modules of a folder (PEP 302, ``sys.path_hooks``). Raises ImportError for one that is not
    of recipes, whose bytecode is read."""
    if not is_of_recipes(name):
        raise ImportError(f"not a folder of recipes: {name}")
    return FileFinder(name, (ExtensionFileLoader, EXTENSION_SUFFIXES), (RecipeLoader, SOURCE_SUFFIXES))


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
