"""TorchTitan: its packages, and versions of a spec."""

from __future__ import annotations

import pytest

from tests.support.recipes import image, recipe

pytestmark = pytest.mark.unit


def test_torchtitan_has_its_three_packages() -> None:
    made = recipe("torchtitan")
    assert made.runtime(image(made)).python == ("torchtitan", "torchao", "torchdata")
    pinned = recipe("torchtitan", version="0.3.0", ao="0.18.0", data="0.11.0")
    assert pinned.runtime(image(pinned)).python == ("torchtitan==0.3.0", "torchao==0.18.0", "torchdata==0.11.0")
    assert all(check.tier == "run" for check in made.verify(image(made)))
