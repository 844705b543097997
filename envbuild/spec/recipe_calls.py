"""Methods of recipes, which are programs of users: what they return is checked, and an error in one is reported with
the line of the recipe's file, not with a traceback."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from envbuild.core.errors import EnvbuildError, SpecError
from envbuild.core.yaml_nodes import relative_path
from envbuild.core.yaml_reader import short
from envbuild.spec.recipe import (
    AptRepository,
    Archive,
    Check,
    Git,
    GitProject,
    PythonIndex,
    Recipe,
    Refusal,
    Runtime,
    Sources,
)

# Types of the items of a list or table that a method returns, and of the items in fields of Sources or Runtime.
ITEM_TYPES: dict[str, type] = {
    "verify": Check, "extensions": str, "faults": Refusal, "refusals": Refusal, "provides": str, "promised": str,
    "remarks": str,
}  # fmt: skip
ELEMENT_TYPES: dict[str, type] = {
    "archives": Archive,
    "git": Git,
    "repositories": AptRepository,
    "indexes": PythonIndex,
    "projects": GitProject,
}
Result = TypeVar("Result")


@contextmanager
def errors_at_recipe_line(path: Path) -> Iterator[None]:
    """Raise exceptions that are not envbuild's own as a SpecError at the last line of `path` that was executed."""
    try:
        yield
    except EnvbuildError:
        raise
    except SyntaxError as error:
        place = f"{relative_path(Path(error.filename or path))}:{error.lineno or 1}:{error.offset or 1}"
        raise SpecError(f"not Python: {error.msg}", where=place) from error
    except (Exception, SystemExit) as error:
        import traceback

        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        place = f"{relative_path(path)}:{frames[-1].lineno}:1" if frames else relative_path(path)
        raise SpecError(f"the recipe fails: {type(error).__name__}: {error}", where=place) from error


def recipe_file(recipe: Recipe | type[Recipe]) -> Path:
    """Return the file that a loaded recipe comes from."""
    return Path(sys.modules[recipe.__module__].__file__ or "")


def call_recipe(recipe: Recipe, method: str, kind: type[Result], *arguments: object) -> Result:
    """Return the result of ``recipe.method(*arguments)``, which must be a `kind` (Sources, Runtime, list, …).

    Raises SpecError at the line of the recipe's file that fails, or of the method that returns something else."""
    path = recipe_file(recipe)
    with errors_at_recipe_line(path):
        function = getattr(recipe, method)
        answer = function(*arguments)
        fault = _result_fault(answer, kind, method)
        if not fault and isinstance(answer, kind):
            return answer
        code = getattr(function, "__code__", None)
        place = (
            f"{relative_path(path)}:{code.co_firstlineno}:1"
            if code and code.co_filename == str(path)
            else relative_path(path)
        )
        raise SpecError(f"{method}() of recipe '{recipe.name}' returns {fault}", _return_hint(kind), place)


def _result_fault(answer: object, kind: type, method: str) -> str:
    """Return what is wrong with the result of a method, as the end of a sentence; or ""."""
    if not isinstance(answer, kind):
        return f"{_describe(answer)}, not {_with_article(kind)}"
    if isinstance(answer, (Sources, Runtime)):
        faults = (_field_fault(answer, kind, field) for field in dataclasses.fields(answer))
        return next(filter(None, faults), "")
    if method in ITEM_TYPES and isinstance(answer, (tuple, list, dict)):
        items = answer.values() if isinstance(answer, dict) else answer
        strange = [item for item in items if not isinstance(item, ITEM_TYPES[method])]
        if strange:
            return f"{_with_article(answer)} with {_describe(strange[0])}, not only {ITEM_TYPES[method].__name__}"
    return ""


def _field_fault(answer: Sources | Runtime, kind: type, field: dataclasses.Field[Any]) -> str:
    """Return what is wrong with one field of Sources or Runtime, as the end of a sentence; or ""."""
    value, name = getattr(answer, field.name), f"{_with_article(kind)} whose '{field.name}'"
    if str(field.type).startswith("Mapping"):
        if not isinstance(value, Mapping):
            return f"{name} is {_describe(value)}, not a dict"
        items = [*value.keys(), *value.values()]
    elif isinstance(value, (tuple, list)):
        items = list(value)
    else:  # a text is a sequence, too
        return f"{name} is {_describe(value)}, not a tuple"
    wanted = ELEMENT_TYPES.get(field.name, str)
    strange = [item for item in items if not isinstance(item, wanted)]
    return f"{name} contains {_describe(strange[0])}, not only {wanted.__name__}" if strange else ""


def _describe(value: object) -> str:
    return (
        "nothing (None)"
        if value is None
        else f"the text '{short(value)}'"
        if isinstance(value, str)
        else _with_article(value)
    )


def _with_article(value: object) -> str:
    name = value.__name__ if isinstance(value, type) else type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _return_hint(kind: type) -> str:
    if kind in (Sources, Runtime):
        return f'let it return {kind.__name__}(debian=("NAME",)), or {kind.__name__}() for nothing'
    return f"let it return {_with_article(kind)}"
