"""Lines of a spec as text: the YAML of a layer with its options, and of a base."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from envbuild.core.distributions import Distribution
from envbuild.spec.recipe import Recipe

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]*\Z")  # texts that YAML reads as they are
WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


def layer_text(name: str, recipe: Recipe) -> str:
    """Return ``torch: "2.8.0"`` or ``cuda: {version: "13.2", flavor: runtime}``; "" for options that have no short
    text."""
    options = {one.name: getattr(recipe, one.name) for one in fields(recipe)}
    options = {key: value for key, value in options.items() if value != _default(recipe, key)}
    try:
        if list(options) == [recipe.shorthand]:
            return f"{name}: {_flow(options[recipe.shorthand])}"
        return f"{name}: {_flow(options)}"
    except TypeError:
        return ""


def base_text(base: Distribution) -> str:
    """Return ``base: debian:12 with python: "3.11"``."""
    return f"base: {base.name} with python: {_flow(base.python)}"


def _default(recipe: Recipe, key: str) -> Any:
    """Return the value of an option that a spec does not name."""
    one = next(one for one in fields(recipe) if one.name == key)
    return one.default if one.default_factory is MISSING else one.default_factory()


def _flow(value: Any) -> str:
    """Return a value in YAML's flow style. Raises TypeError for anything but a text, number, list or mapping."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        return value if PLAIN.match(value) and value.lower() not in WORDS else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise TypeError(f"{value!r} has no short text")
