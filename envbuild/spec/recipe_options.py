"""Options of a recipe as a spec writes them.

Texts from a spec become parts of file names, requirements and commands. Recipes quote them; as a second line of defence
this module refuses every text that a shell would expand or that spans lines."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from functools import cache, partial
from inspect import get_annotations
from typing import Any

from envbuild.core.yaml_nodes import Node, Scalar, Sequence, Table, describe
from envbuild.core.yaml_reader import Guard, Reader, short
from envbuild.spec.enroot_rules import expansion_fault
from envbuild.spec.recipe import OptionError, Recipe, Refusal
from envbuild.spec.recipe_calls import call_recipe, errors_at_recipe_line, recipe_file

VERSION = r"[0-9A-Za-z][0-9A-Za-z.+_~-]{0,99}"


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
        removed = f"to remove a layer of the spec that this one extends write {name}: null"
        hint = removed if node.value.lower() == "false" else f"for its defaults write {name}: {{}}"
        reader.wrong(node.where, f"layer '{name}' cannot be {node.value}", hint)
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
