"""Names of units, which are keys of locks."""

from __future__ import annotations

import pytest

from envbuild.lock.unit_names import build_unit, built_recipe, devel_unit, in_image, root_unit

pytestmark = pytest.mark.unit


def test_a_compiling_recipe_has_units_of_its_name() -> None:
    assert (build_unit("ucx"), root_unit("ucx"), devel_unit("ucx")) == ("build-ucx", "root-build-ucx", "devel-ucx")


@pytest.mark.parametrize(
    ("unit", "recipe", "image"),
    [
        ("base", "", True),
        ("venv", "", True),
        ("venv-core", "", True),
        ("tools", "", False),
        ("build-ucx", "ucx", False),
    ],
)
def test_what_builds_take_is_not_part_of_the_image(unit: str, recipe: str, image: bool) -> None:
    assert (built_recipe(unit), in_image(unit)) == (recipe, image)
