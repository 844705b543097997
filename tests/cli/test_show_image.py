"""Layers of an image as `envbuild show` lists them: the version, where it comes from, options unlike the default."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from envbuild.build.plan.planner import make_plan
from envbuild.cli.show_image import layer, unit_rows, versioned
from envbuild.core.store.store import Store, UnitRecord
from envbuild.lock.draft import draft_from_request
from envbuild.lock.request import lock_request
from envbuild.lock.resolve import resolve_in
from envbuild.sdk import Recipe
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from tests.support.command import envbuild

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


SPEC = """schema: 1
target: cpu
base: debian:13
python: "3.13"
layers:
  script: {run: ["echo word > words"], into: /opt/words}
"""


def test_a_script_is_marked_by_show_and_in_the_image(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    path = tmp_path / "images/own.yaml"
    path.write_text(SPEC)
    done = envbuild("show", "own", cwd=tmp_path)
    assert "note: script: /opt/words is made by commands of the spec (sha256 " in done.stdout
    (remark,) = resolution_document(path)["remarks"]
    assert f"note: {remark}\n" in done.stdout
    path.write_text(SPEC.partition("layers")[0] + "layers: {debian-packages: [hello]}\n")
    assert "remarks" not in resolution_document(path)  # the bytes of other images are as before


def resolution_document(path: Path) -> dict[str, Any]:
    """Return /etc/envbuild/resolution.json of the image of a spec."""
    project = Project(path.parents[1])
    resolution = resolve_in(load_image_spec(str(path), project), project)
    (files,) = make_plan(resolution, draft_from_request(lock_request(resolution))).units[-1].inputs
    found: dict[str, Any] = json.loads(dict(files.texts)["etc/envbuild/resolution.json"])
    return found
