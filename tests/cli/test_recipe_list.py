"""Recipes as `envbuild recipes` describes them: options with their types and defaults, and dependencies."""

from __future__ import annotations

import pytest

from envbuild.cli.recipe_list import describe_recipe, list_recipes
from envbuild.core.errors import SpecError
from envbuild.spec.project import Project

pytestmark = pytest.mark.unit


def test_an_option_of_every_type(small: Project) -> None:
    data = describe_recipe("widget", small).data
    options = {row["name"]: (row["type"], row["choices"], row["default"]) for row in data["options"]}
    assert options == {
        "version": ("text", [], ""),
        "jobs": ("whole number", [], 1),
        "ratio": ("number", [], 0.5),
        "shared": ("true or false", [], True),
        "level": ("choice", ["low", "high"], "low"),
        "mode": ("choice", ["fast", "small"], "fast"),
        "plugins": ("list of texts", [], []),
        "flags": ("names with texts", [], {}),
        "note": ("text", [], None),
    }
    assert not any(row["required"] for row in data["options"])
    assert (data["after"], data["requires"], data["shorthand"]) == (["toolkit"], [], "version")


def test_the_description_is_of_the_file_and_one_of_dataclass_does_not_count(small: Project) -> None:
    data = describe_recipe("widget", small).data
    assert (data["about"], data["description"]) == ("A recipe with an option of every type.", "")
    assert describe_recipe("gadget", small).data["requires"] == ["toolkit"]


def test_the_text_has_a_row_for_each_option(small: Project) -> None:
    lines = [line.split("  ") for line in describe_recipe("widget", small).text.splitlines()]
    rows = {line[0]: [cell.strip() for cell in line if cell][1:] for line in lines if line[0]}
    assert rows["mode"] == ["one of fast, small", "fast"]
    assert rows["shared"] == ["true or false", "true"]
    assert rows["note"] == ["text"]
    assert describe_recipe("widget", small).text.endswith("if the image has them: toolkit")


def test_a_recipe_that_does_not_load_is_listed_with_its_error(small: Project) -> None:
    rows = {row["name"]: row for row in list_recipes(small).data["recipes"]}
    assert list(rows) == sorted(rows) and {"widget", "gadget", "faulty"} <= rows.keys()
    assert rows["widget"]["about"] == "A recipe with an option of every type."
    assert all(row["file"].endswith(f"{name.replace('-', '_')}.py") for name, row in rows.items())
    with pytest.raises(SpecError) as caught:
        describe_recipe("widgt", small)
    assert "widget" in caught.value.hint
