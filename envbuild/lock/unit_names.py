"""Names of units: those that every lock may have, and those that each compiling recipe adds.

They are keys of locks and part of messages and build records, so their text must not change. A lock has ``base`` to
``venv`` for the image, ``tools``, and ``build-NAME`` with the inputs of a compiling recipe; a plan has units of the
same names for the image, and of a recipe up to three: ``root-build-NAME``, ``devel-NAME`` and ``NAME``.
"""

from __future__ import annotations

BASE = "base"
DEBIAN = "debian"  # the Debian packages that an image runs with
VENV_TOOLKIT = "venv-toolkit"  # the lowest part of the venv: the CUDA wheels
VENV_CORE = "venv-core"  # the next part: torch and what it needs
VENV = "venv"  # the rest of the venv; in a lock all of it
GLUE = "glue"  # of a plan only: what is written when everything else is there
TOOLS = "tools"  # of a lock only: the uv that builds use

VENV_PARTS = (VENV_TOOLKIT, VENV_CORE)  # the units that form the lower layers of the venv, bottom first

_BUILD = "build-"


def build_unit(recipe: str) -> str:
    """Return the name of the unit of a lock with what the build of a recipe takes."""
    return f"{_BUILD}{recipe}"


def built_recipe(unit: str) -> str:
    """Return the recipe that `build_unit` names a unit after; empty for every other unit."""
    return unit.removeprefix(_BUILD) if unit.startswith(_BUILD) else ""


def root_unit(recipe: str) -> str:
    """Return the name of the unit of a plan that holds the Debian packages of a recipe's build."""
    return f"root-{build_unit(recipe)}"


def devel_unit(recipe: str) -> str:
    """Return the name of the unit of a plan that holds what only builds need of a recipe."""
    return f"devel-{recipe}"


def in_image(unit: str) -> bool:
    """Return whether what a lock has for a unit becomes part of the image as it is."""
    return unit != TOOLS and not built_recipe(unit)
