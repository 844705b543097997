"""A spec that a command names by its path is one of the project in which the file is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import ROOT, envbuild

pytestmark = pytest.mark.unit

RECIPE = """from dataclasses import dataclass
from typing import Any

from envbuild.sdk import Recipe, RecipeEnv, shell


@dataclass(frozen=True, kw_only=True)
class Tool(Recipe):
    prefix = "/opt/tool"

    def build(self, env: RecipeEnv) -> list[Any]:
        return [shell(commands=["echo {name} > /opt/tool/name"])]
"""
SPEC = "schema: 1\ntarget: cpu\nbase: debian:13\nlayers: {tool: {}}\n"


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """Return a folder with the projects `a` and `b`: both have a recipe called `tool`, and an image."""
    for name in ("a", "b"):
        for kind in ("images", "recipes"):
            (tmp_path / name / kind).mkdir(parents=True)
        (tmp_path / name / f"images/im-{name}.yaml").write_text(SPEC)
        (tmp_path / name / "recipes/tool.py").write_text(RECIPE.format(name=name))
    return tmp_path


@pytest.mark.parametrize("folder", ["a", "b", ""])
def test_its_recipes_are_used_from_every_folder(projects: Path, folder: str) -> None:
    done = envbuild("compile", str(projects / "b/images/im-b.yaml"), cwd=projects / folder)
    assert done.returncode == 0, done.stderr
    assert "echo b > /opt/tool/name" in done.stdout


def test_a_spec_outside_of_projects_is_one_of_the_current_folder(projects: Path) -> None:
    (projects / "loose.yaml").write_text(SPEC)
    done = envbuild("compile", "../loose.yaml", cwd=projects / "a")
    assert "echo a > /opt/tool/name" in done.stdout, done.stderr


def test_images_of_two_projects_are_refused(projects: Path) -> None:
    done = envbuild("make", "im-a", "../b/images/im-b.yaml", cwd=projects / "a")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: ../b/images/im-b.yaml: the spec is in the project {projects / 'b'}, and other images of this command "
        f"are in the project {projects / 'a'}",
        "hint: type it alone: ../b/images/im-b.yaml",
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_paths_decides_nothing(projects: Path, order: int) -> None:
    (projects / "loose.yaml").write_text(SPEC)
    names = ["loose.yaml", str(ROOT / "images/cpu-ucx.yaml"), "b/images/im-b.yaml"][::order]
    done = envbuild("make", *names, "--locked", cwd=projects)
    assert done.returncode == 4
    assert "loose has no lock" in done.stderr and "im-b has no lock" in done.stderr


def test_a_path_through_links_in_a_circle_is_an_error(projects: Path) -> None:
    (projects / "circle").symlink_to("circle")
    done = envbuild("compile", "circle/x.yaml", cwd=projects)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_a_spec_is_compared_with_a_file(projects: Path) -> None:
    done = envbuild("diff", "../b/images/im-b.yaml", "./none.sqsh", cwd=projects / "a")
    assert "none.sqsh" in done.stderr.splitlines()[0]
    assert "is in the project" not in done.stderr
