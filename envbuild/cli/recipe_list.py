"""``envbuild recipes``: the recipes and the options that a spec may set, as their classes declare them."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import sys
import types
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from envbuild.core.errors import EnvbuildError
from envbuild.core.result import Result
from envbuild.core.text import flow, table
from envbuild.core.yaml_nodes import relative_path
from envbuild.spec.project import Project
from envbuild.spec.recipe import Recipe
from envbuild.spec.recipe_calls import errors_at_recipe_line, recipe_file
from envbuild.spec.recipe_loader import load_recipe
from envbuild.spec.recipe_options import is_required, option_fields, option_types
from envbuild.spec.resolve import plain_value

WORDS = {str: "text", int: "whole number", float: "number"}


def list_recipes(project: Project) -> Result:
    """Return every recipe of the project and those that ship with envbuild: name, description, file.

    The error of a recipe that does not load is its description.
    """
    rows: list[dict[str, Any]] = []
    for name in project.recipes():
        path = project.find_recipe(name)
        row: dict[str, Any] = {"name": name, "about": "", "file": relative_path(path)}
        rows.append(row)
        try:
            row["about"] = about(load_recipe(path))
        except EnvbuildError as error:
            row["about"] = str(error.findings[0]).partition("\nhint: ")[0]
    text = table(["NAME", "ABOUT"], [[row["name"], row["about"]] for row in rows])
    return Result({"recipes": rows}, f"{text}\nthe options of one: envbuild recipes NAME")


def describe_recipe(name: str, project: Project) -> Result:
    """Return the description, options and dependencies of a recipe.

    Raises SpecError for an unknown name, and for a file that does not load.
    """
    recipe = load_recipe(project.find_recipe(name))
    keys, hints = option_fields(recipe), option_types(recipe)
    after, requires = dependencies(recipe)
    options = [option(keys[key], hints[key]) for key in keys]
    description = text_of(recipe)
    data: dict[str, Any] = {
        "name": name,
        "about": about(recipe),
        "description": description,
        "file": relative_path(recipe_file(recipe)),
        "shorthand": recipe.shorthand if recipe.shorthand in keys else "",
        "options": options,
        "after": after,
        "requires": requires,
    }
    head: list[str] = [f"{name}: {data['about']}", f"  {data['file']}", ""]
    head += [description, ""] if description else []
    rows = [
        [row["name"], f"one of {', '.join(map(flow, row['choices']))}" if row["choices"] else row["type"], default(row)]
        for row in options
    ]
    lines = [table(["OPTION", "TAKES", "DEFAULT"], rows)] if rows else ["it has no options"]
    if data["shorthand"]:
        lines.append(f"a bare value, {name}: …, sets {data['shorthand']}")
    lines += [f"needs the layers: {', '.join(requires)}"] if requires else []
    lines += [f"built after these layers, if the image has them: {', '.join(after)}"] if after else []
    return Result(data, "\n".join([*head, *lines]))


def dependencies(recipe: type[Recipe]) -> tuple[list[str], list[str]]:
    """Return (`after`, `requires`) of a recipe.

    If they depend on its options, those of the defaults; none if an option has no default.
    """
    one = recipe if any(map(is_required, option_fields(recipe).values())) else default_recipe(recipe)
    found = [getattr(one, name) for name in ("after", "requires")]
    after, requires = ([] if isinstance(value, property) else list(value) for value in found)
    return after, requires


def default_recipe(recipe: type[Recipe]) -> Recipe | type[Recipe]:
    """Return the recipe with its defaults, or the class if it refuses them (some options depend on each other)."""
    with errors_at_recipe_line(recipe_file(recipe)):
        try:
            return recipe()
        except ValueError:
            return recipe


def about(recipe: type[Recipe]) -> str:
    """Return the description in one line: the first line of the file's docstring, or of the class."""
    whole = inspect.getdoc(sys.modules[recipe.__module__]) or text_of(recipe)
    return whole.partition("\n")[0]


def text_of(recipe: type[Recipe]) -> str:
    """Return the docstring of the class, "" if only `dataclass` wrote one."""
    own = recipe.__doc__ or ""
    return "" if own.startswith(f"{recipe.__name__}(") else inspect.cleandoc(own)


def option(field: dataclasses.Field[Any], annotation: Any) -> dict[str, Any]:
    """Return an option: name, type in words, choices, default (None: required)."""
    kind, choices = typed(annotation)
    value = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    needed = is_required(field)
    return {
        "name": field.name,
        "type": kind,
        "choices": choices,
        "required": needed,
        "default": None if needed else plain_value(value),
    }


def typed(annotation: Any) -> tuple[str, list[str]]:
    """Return (type in words, choices) of an annotation that `envbuild.core.yaml_reader.Reader.value` reads."""
    if annotation is bool:
        return "true or false", []
    if isinstance(annotation, types.UnionType):
        return typed(next(part for part in get_args(annotation) if part is not types.NoneType))
    origin = get_origin(annotation)
    if origin is Literal:
        return "choice", [str(choice) for choice in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return "choice", [str(member.value) for member in annotation]
    if origin is tuple:
        return "list of texts", []
    if origin in (dict, Mapping):
        return "names with texts", []
    return WORDS.get(annotation, str(annotation)), []


def default(row: Mapping[str, Any]) -> str:
    """Return a default as text."""
    return "(must be given)" if row["required"] else "" if row["default"] is None else flow(row["default"])
