"""``envbuild recipes``: the recipes and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild.cli.options import Json, complete_recipe, show


def recipes_command(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="A recipe: cuda, torch, …", autocompletion=complete_recipe)
    ] = "",
    as_json: Json = False,
) -> None:
    """List the recipes, which are the layers that a spec may have; describe one with its options."""
    from envbuild.cli.recipe_list import describe_recipe, list_recipes
    from envbuild.spec.project import Project

    project = Project.find()
    result = describe_recipe(name, project) if name else list_recipes(project)
    show(result.data, as_json, result.text)
