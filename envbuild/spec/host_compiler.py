"""The compiler of the units on top of a recipe: a CUDA toolkit may refuse the distribution's default gcc."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from envbuild.spec.recipe import Recipe, Sources

COMPILERS = frozenset({"g++", "gcc"})


def recipes_below(name: str, recipes: Mapping[str, Recipe]) -> list[str]:
    """Return the recipes of the image that `name` builds on, directly or not, in their order."""
    found: set[str] = set()
    todo = list(recipes[name].after)
    while todo:
        other = todo.pop()
        if other in recipes and other not in found:
            found.add(other)
            todo += recipes[other].after
    return [other for other in recipes if other in found]


def host_compiler(name: str, recipes: Mapping[str, Recipe]) -> str:
    """Return the major version of the gcc that the unit of `name` compiles with; "": that of the distribution."""
    return next((found for other in recipes_below(name, recipes) if (found := recipes[other].host_compiler)), "")


def is_compiled_with(version: str, sources: Sources) -> bool:
    """Return whether a unit with these inputs, which has a compiler or not, has that version of it."""
    return bool(version) and f"g++-{version}" in sources.debian


def with_host_compiler(sources: Sources, version: str) -> Sources:
    """Return the inputs of a unit with the compiler of that version, if the unit compiles at all."""
    if not version or not COMPILERS & set(sources.debian):
        return sources
    return replace(sources, debian=(*sources.debian, f"g++-{version}"))


def compiler_variables(version: str) -> dict[str, str]:
    """Return the variables by which make, configure, CMake, setuptools and nvcc find that compiler."""
    gcc, gxx = f"gcc-{version}", f"g++-{version}"
    return {"CC": gcc, "CUDAHOSTCXX": gxx, "CXX": gxx} if version else {}
