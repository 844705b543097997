"""Recipe files: what goes wrong in one is told with its own line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild import spec
from envbuild.errors import SpecError
from envbuild.project import Project
from envbuild.recipefile import load_recipe

pytestmark = pytest.mark.unit

GOOD = '''
from dataclasses import dataclass
from envbuild.recipe import Recipe

@dataclass(frozen=True, kw_only=True)
class Thing(Recipe):
    """A recipe."""
'''


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("def broken(:\n", ":1:12", "not Python: invalid syntax"),
        ("x = 1\n\nraise RuntimeError('no')\n", ":3:1", "the recipe fails: RuntimeError: no"),
        ("def f():\n    return 1 / 0\nf()\n", ":2:1", "the recipe fails: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", ":2:1", "the recipe fails: SystemExit: 3"),
        ("import no_such_module\n", ":1:1", "the recipe fails: ModuleNotFoundError: No module named 'no_such_module'"),
        ("from envbuild.recipe import Recipe\n", "", "a recipe file defines one Recipe class; this one defines none"),
        (
            GOOD + GOOD.replace("Thing", "Other"),
            "",
            "a recipe file defines one Recipe class; this one defines 2: Thing, Other",
        ),
        (
            GOOD.replace("@dataclass(frozen=True, kw_only=True)\n", ""),
            "",
            "class Thing is not a dataclass, so its fields are not options",
        ),
    ],
)
def test_a_faulty_file(text: str, place: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "thing.py"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_recipe(path)
    assert caught.value.where == f"{path}{place}"
    assert caught.value.message == message


def test_a_binary_file_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "thing.py").write_bytes(b"\0\xff")
    for name in ("thing.py", "other.py"):
        with pytest.raises(SpecError):
            load_recipe(tmp_path / name)


def test_a_file_is_loaded_once_and_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "my_thing.py"
    path.write_text(GOOD)
    first = load_recipe(path)
    assert first.name == "my-thing"
    assert load_recipe(path) is first
    path.write_text(GOOD + "    size: int = 1\n")
    os.utime(path, (1, 1))
    assert "size" in load_recipe(path).__dataclass_fields__


def test_two_projects_may_have_a_recipe_of_one_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thing.py").write_text(GOOD + f"    only_{name}: int = 1\n")
    a, b = (load_recipe(tmp_path / name / "thing.py") for name in ("a", "b"))
    assert "only_a" in a.__dataclass_fields__
    assert "only_b" in b.__dataclass_fields__


def test_a_recipe_may_build_on_another_class(tmp_path: Path) -> None:
    """Only classes that the file defines itself count; imported ones do not."""
    (tmp_path / "thing.py").write_text("from envbuild.recipe import Recipe as Base\n" + GOOD)
    assert load_recipe(tmp_path / "thing.py").__name__ == "Thing"


@pytest.mark.parametrize(
    ("field", "layer", "message"),
    [
        ("    where: complex = 1j\n", "{where: 1}", "the type of 'where' cannot be read from YAML: <class 'complex'>"),
        ("    where: Unknown = 1\n", "{}", "the recipe fails: NameError: name 'Unknown' is not defined"),
        ("    where: str\n", "{}", "layer 'thing' needs a value for 'where'"),
        ("    shorthand = 'nothing'\n", "text", "layer 'thing' takes keys with values"),
    ],
)
def test_fields_that_do_not_fit(field: str, layer: str, message: str, tmp_path: Path) -> None:
    for folder in ("recipes", "images"):
        (tmp_path / folder).mkdir()
    text = "from __future__ import annotations\n" + GOOD + field
    (tmp_path / "recipes" / "thing.py").write_text(text)
    (tmp_path / "images" / "x.yaml").write_text(
        f"schema: 1\ntarget: cpu\nbase: debian:13\nlayers: {{thing: {layer}}}\n"
    )
    with pytest.raises(SpecError) as caught:
        spec.load("x", Project(tmp_path))
    assert message in caught.value.message
