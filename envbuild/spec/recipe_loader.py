"""Recipe files: the class in one, and its options as a spec writes them.

A recipe file of a project is a user's program, so an error in it is reported with the file's own line, not with a
traceback.

Texts from a spec become parts of file names, requirements and commands. Recipes quote them; as a second line of defence
this module refuses every text that a shell would expand or that spans lines."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from inspect import get_annotations
from pathlib import Path
from typing import Any, TypeVar

from envbuild.core.errors import EnvbuildError, SpecError
from envbuild.core.yaml_nodes import Node, Scalar, Sequence, Table, describe, relative_path
from envbuild.core.yaml_reader import Guard, Reader, short
from envbuild.spec.enroot_rules import expansion_fault
from envbuild.spec.recipe import (
    AptRepository,
    Archive,
    Check,
    Git,
    OptionError,
    PythonIndex,
    Recipe,
    Refusal,
    Runtime,
    Sources,
)
from envbuild.spec.recipe_source import RecipeLoader, check_names

VERSION = r"[0-9A-Za-z][0-9A-Za-z.+_~-]{0,99}"
# Types of the items of a list or table that a method returns, and of the items in fields of Sources or Runtime.
ITEM_TYPES: dict[str, type] = {
    "verify": Check, "extensions": str, "faults": Refusal, "refusals": Refusal, "provides": str, "promised": str,
}  # fmt: skip
ELEMENT_TYPES: dict[str, type] = {
    "archives": Archive,
    "git": Git,
    "repositories": AptRepository,
    "indexes": PythonIndex,
}
Result = TypeVar("Result")
_loaded: dict[tuple[str, int, int], type[Recipe]] = {}


def load_recipe(path: Path) -> type[Recipe]:
    """Return the one Recipe class that the file defines, its `name` set from the file's (``nccl_tests.py`` →
    ``nccl-tests``).

    Raises SpecError, with the line, for a file that does not load or that does not define exactly one recipe."""
    try:
        status = path.stat()
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", where=relative_path(path)) from None
    key = (str(path.absolute()), status.st_mtime_ns, status.st_size)
    if key not in _loaded:
        _loaded[key] = _load(path)
    return _loaded[key]


def _load(path: Path) -> type[Recipe]:
    name = f"envbuild_recipes.{path.stem}_{zlib.crc32(str(path.absolute()).encode()):08x}"
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


def recipe_file(recipe: Recipe | type[Recipe]) -> Path:
    """Return the file that a loaded recipe comes from."""
    return Path(sys.modules[recipe.__module__].__file__ or "")


def option_types(recipe: type[Recipe]) -> dict[str, Any]:
    """Return the types of a recipe's keys."""
    found: dict[str, Any] = {}
    for part in reversed(recipe.__mro__):
        found |= _own_types(part)
    return found


@cache
def _own_types(part: type) -> dict[str, Any]:
    """Return the types of a class's own annotations: those of `Recipe` are computed once (`get_type_hints`
    would compute them each time)."""
    return get_annotations(part, eval_str=True)


def option_fields(recipe: type[Recipe]) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields that a spec may write as keys. `version` is one only in recipes with a version: those that name
    their `package`, or that define the field themselves."""
    fields = {field.name: field for field in dataclasses.fields(recipe) if field.init}
    if not recipe.package and fields.get("version") is Recipe.__dataclass_fields__["version"]:
        del fields["version"]
    return fields


def read_options(reader: Reader, recipe: type[Recipe], node: Node) -> Recipe | None:
    """Return the recipe with the options under ``layers: NAME:``; add mistakes to `reader` and then return None.

    A text or a list sets the field named by the class's `shorthand`; keys with values set fields by name."""
    fields = option_fields(recipe)
    before = len(reader.findings)
    given = _given_options(reader, recipe, node, fields)
    if given is None:
        return None
    with errors_at_recipe_line(recipe_file(recipe)):
        values = _option_values(reader, recipe, given, shorthand=not isinstance(node, Table))
        for key, field in fields.items():
            if is_required(field) and key not in given:
                reader.wrong(
                    node.where, f"layer '{recipe.name}' needs a value for '{key}'", f"write {recipe.name}: {{{key}: …}}"
                )
        if len(reader.findings) > before:
            return None
        try:
            made = recipe(**values)
        except ValueError as error:  # a recipe's own check, in its __post_init__
            hint = error.hint if isinstance(error, OptionError) else ""
            reader.wrong(node.where, f"layer '{recipe.name}': {error}", hint)
            return None
        faults: dict[Any, Refusal] = call_recipe(made, "faults", dict)
        for text, fault in faults.items():
            for place in text_places(node, str(text)) or (node.where,):
                reader.wrong(place, f"layer '{recipe.name}': '{short(str(text))}' {fault.because}", fault.hint)
        return None if faults else made


def _given_options(
    reader: Reader, recipe: type[Recipe], node: Node, fields: Iterable[str]
) -> Mapping[str, Node] | None:
    """Return the keys of a layer in the spec; add a mistake to `reader` and then return None."""
    name = recipe.name
    if isinstance(node, Table):
        return reader.table(node, fields, name, f"layer '{name}'")
    if isinstance(node, Scalar) and node.kind == "null":
        reader.wrong(node.where, f"layer '{name}' has no value", f"for its defaults write {name}: {{}}")
    elif isinstance(node, Scalar) and node.kind == "truth":
        reader.wrong(node.where, f"layer '{name}' cannot be {node.value}", f"for its defaults write {name}: {{}}")
    elif recipe.shorthand in fields:
        return {recipe.shorthand: node}
    else:
        keys = f"its keys are: {', '.join(sorted(fields))}" if fields else f"write {name}: {{}}"
        reader.wrong(node.where, f"layer '{name}' must be keys with values, not {describe(node)}", keys)
    return None


def _option_values(
    reader: Reader, recipe: type[Recipe], given: Mapping[str, Node], *, shorthand: bool
) -> dict[str, Any]:
    """Return the values of the keys; add mistakes to `reader`."""
    hints = option_types(recipe)
    values: dict[str, Any] = {}
    for key, value in given.items():
        if isinstance(value, Sequence) and hints[key] is str and shorthand:
            reader.wrong(value.where, f"layer '{recipe.name}' must be one {key}, not a list")
        else:
            label = recipe.name if shorthand else key
            values[key] = reader.value(value, hints[key], label, option_guard(recipe, key))
    return values


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Return whether an option has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def text_places(node: Node, text: str) -> tuple[str, ...]:
    """Return the places in `node` of the scalar `text`."""
    if isinstance(node, Scalar):
        return (node.where,) if node.value == text else ()
    inner = node.items if isinstance(node, Sequence) else [value for _, value in node.entries.values()]
    return tuple(place for item in inner for place in text_places(item, text))


def option_guard(recipe: type[Recipe], key: str) -> Guard:
    """Return the check for the texts of an option: versions, contents of files, and words of commands have different
    rules."""
    if key in recipe.verbatim:
        return partial(expansion_fault, reader="file")
    return version_fault if key == "version" else command_fault


def command_fault(text: str) -> str:
    """Return what is wrong with a text that a recipe may put into a command, or ""."""
    return expansion_fault(text, "command")


def version_fault(text: str) -> str:
    """Return what is wrong with a version, which is also part of file names and origins, or ""."""
    if reason := command_fault(text):
        return reason
    return "" if re.fullmatch(VERSION, text) else f"is not a version or commit: '{short(text)}'"
