"""The code of a recipe file: compiled from its text each time, and compared with the names that envbuild calls."""

from __future__ import annotations

import difflib
import inspect
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import envbuild
from envbuild.core.errors import SpecError
from envbuild.core.written_file import read_written
from envbuild.core.yaml_nodes import relative_path
from envbuild.spec.recipe import Recipe

INSTALLED = Path(envbuild.__file__).parent
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
