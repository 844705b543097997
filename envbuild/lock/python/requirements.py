"""Python requirements of the units of an image: of the run-time environment together, of each build separately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packaging.requirements import InvalidRequirement, Requirement

from envbuild.core.errors import SpecError
from envbuild.lock.request import UnitRequest
from envbuild.lock.unit_names import VENV, VENV_PARTS
from envbuild.spec.pyproject import MAX_REQUIREMENT

# Programs of a build whose version has no effect on its result: their version may differ from the
# shipped one.
BUILD_TOOLS = frozenset(
    [
        "build",
        "cmake",
        "cython",
        "flit-core",
        "hatchling",
        "meson",
        "meson-python",
        "ninja",
        "packaging",
        "pip",
        "pybind11",
        "scikit-build-core",
        "setuptools",
        "setuptools-scm",
        "uv",
        "wheel",
    ]
)


def venv_parts(units: Mapping[str, UnitRequest]) -> dict[str, tuple[str, ...]]:
    """Return unit → requirements of the units that form the lower layers of the venv."""
    return {unit: request.python for unit, request in units.items() if unit in VENV_PARTS and request.python}


def runtime_requirements(units: Mapping[str, UnitRequest]) -> tuple[str, ...]:
    """Return the requirements of the venv and its parts, each once; they are resolved together."""
    shared = [text for texts in venv_parts(units).values() for text in texts]
    return tuple(dict.fromkeys([*shared, *units.get(VENV, UnitRequest()).python]))


def build_requirements(units: Mapping[str, UnitRequest]) -> dict[str, tuple[str, ...]]:
    """Return unit → requirements of the units that are resolved separately."""
    parts = venv_parts(units)
    return {
        unit: (*request.python, *request.devel)
        for unit, request in units.items()
        if (request.python or request.devel) and unit != VENV and unit not in parts
    }


def check_requirements(unit: str, requirements: Iterable[str]) -> None:
    """Raise SpecError for a text that is not a requirement by name (PEP 508)."""
    for text in requirements:
        if len(text) > MAX_REQUIREMENT:  # `packaging` reads it slowly, and a number of 5,000 digits not at all
            raise SpecError(f"'{text[:60]}…' (of {unit}) has more than {MAX_REQUIREMENT} characters")
        try:
            found = Requirement(text)
        except (InvalidRequirement, RecursionError) as error:  # parentheses of a marker in each other
            raise SpecError(
                f"'{text}' (of {unit}) is not a Python requirement: {error}", hint="write for example: numpy>=2,<3"
            ) from None
        if found.url:
            raise SpecError(
                f"'{text}' (of {unit}) names an address; a lock holds packages of an index",
                hint="write a recipe with the source as an archive, or write a version",
            )
