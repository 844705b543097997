"""Recipe files: the class in one.

A recipe file of a project is a user's program, so an error in it is reported with the file's own line, not with a
traceback."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from pathlib import Path

from envbuild.core.errors import SpecError
from envbuild.core.file_marks import FileMark
from envbuild.core.yaml_nodes import relative_path
from envbuild.spec.recipe import Recipe
from envbuild.spec.recipe_calls import errors_at_recipe_line
from envbuild.spec.recipe_files import mark_folder
from envbuild.spec.recipe_source import RECIPES, RecipeLoader, check_names, compile_each_time

_loaded: dict[tuple[str, int, int, tuple[FileMark, ...]], type[Recipe]] = {}


def load_recipe(path: Path) -> type[Recipe]:
    """Return the one Recipe class that the file defines, its `name` set from the file's (``nccl_tests.py`` →
    ``nccl-tests``).

    Raises SpecError, with the line, for a file that does not load or that does not define exactly one recipe."""
    try:
        status = path.stat()
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", where=relative_path(path)) from None
    # A recipe may read files beside it when it is loaded.
    marks = tuple(mark_folder(path.parent))
    key = (str(path.absolute()), status.st_mtime_ns, status.st_size, marks)
    if key not in _loaded:
        compile_each_time(path.parent, marks)
        _loaded[key] = _load(path)
    return _loaded[key]


def _load(path: Path) -> type[Recipe]:
    name = f"{RECIPES}{path.stem}_{zlib.crc32(str(path.absolute()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path, loader=RecipeLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise SpecError("a recipe is a Python file", where=relative_path(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and type hints search their module there
    try:
        with errors_at_recipe_line(path):
            spec.loader.exec_module(module)
        found = [item for item in vars(module).values() if isinstance(item, type) and issubclass(item, Recipe)]
        own = [item for item in dict.fromkeys(found) if item.__module__ == name]
        if len(own) != 1:
            names = ", ".join(item.__name__ for item in own)
            raise SpecError(
                f"a recipe file defines one Recipe class; this one defines {f'{len(own)}: {names}' if own else 'none'}",
                "see recipes/ of envbuild for examples",
                relative_path(path),
            )
        if "__dataclass_fields__" not in vars(own[0]):
            hint = f"write @dataclass(frozen=True, kw_only=True) above class {own[0].__name__}"
            raise SpecError(
                f"class {own[0].__name__} is not a dataclass, so its fields are not options", hint, relative_path(path)
            )
        check_names(own[0], path)
    except BaseException:
        del sys.modules[name]
        raise
    own[0].name = path.stem.replace("_", "-")
    return own[0]
