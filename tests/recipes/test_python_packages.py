"""Python packages: wheels of those that are source only."""

from __future__ import annotations

import pytest

from envbuild.core.errors import SpecError
from tests.support.recipes import SOURCE_ONLY, commands, image, recipe

pytestmark = pytest.mark.unit


def test_wheels_of_packages_that_are_source_only() -> None:
    made = recipe("python-packages", packages=["numpy"], **SOURCE_ONLY)
    env = image(made)
    assert made.builds and made.sources(env).sdists == tuple(SOURCE_ONLY["compiled"])
    assert made.runtime(env).python == ("numpy",)
    assert "uv" in commands(made, env).lower()
    plain = recipe("python-packages", packages=["numpy"])
    assert not plain.builds and not plain.build(env) and not plain.sources(env).sdists
    with pytest.raises(SpecError, match="names an address"):
        recipe("python-packages", compiled=["demo @ https://files.example/demo.tar.gz"])
