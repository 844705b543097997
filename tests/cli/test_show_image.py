"""Layers of an image as `envbuild show` lists them: the version, where it comes from, options unlike the default."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from envbuild.cli.show_image import layer, unit_rows, versioned
from envbuild.core.store.store import Store, UnitRecord
from envbuild.sdk import Recipe

pytestmark = pytest.mark.unit


@dataclass(frozen=True, kw_only=True)
class Widget(Recipe):
    component: ClassVar[str] = "widget"
    version: str = ""
    jobs: int = 1
    names: tuple[str, ...] = field(default_factory=tuple)


@dataclass(frozen=True, kw_only=True)
class Fixed(Recipe):
    component: ClassVar[str] = "fixed"
    version: str = "3"


def found(recipe: Recipe, *chosen: str) -> dict[str, Any]:
    resolution: Any = SimpleNamespace(spec=SimpleNamespace(recipes={"it": recipe}), chosen=dict.fromkeys(chosen, "1"))
    return layer("it", resolution)


@pytest.mark.parametrize(
    ("recipe", "chosen", "by", "text"),
    [
        (Widget(version="1.20"), [], "spec", "1.20"),
        (Widget(version="1.20"), ["widget"], "matrix", "1.20 (picked)"),
        (Widget(), ["widget"], "", ""),
        (Widget(), [], "", ""),
        (Fixed(), [], "recipe", "3 (the recipe's)"),
    ],
)
def test_where_a_version_comes_from(recipe: Recipe, chosen: list[str], by: str, text: str) -> None:
    row = found(recipe, *chosen)
    assert (row["version_by"], versioned(row)) == (by, text)


def test_options_unlike_their_default() -> None:
    assert found(Widget(version="1", jobs=4, names=()))["options"] == {"jobs": 4}
    assert found(Widget(names=("a",)))["options"] == {"names": ["a"]}
    assert found(Fixed())["options"] == {}


def test_a_unit_has_the_box_that_it_was_built_in(store: Store) -> None:
    box = {"seccomp": True, "keyring": True, "cgroup": True}
    store.record_unit(UnitRecord("a" * 64, "ucx", box=box))
    keys = {"ucx": "a" * 64, "apex": "b" * 64}
    units = [SimpleNamespace(name=name, in_image=True) for name in keys]
    plan: Any = SimpleNamespace(keys=lambda: keys, units=units, needs=lambda unit: ())
    assert [row["box"] for row in unit_rows(plan, store)] == [box, {}]
