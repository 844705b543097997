"""The checks of an image that its layers declare, and those of its project folders."""

from __future__ import annotations

from envbuild.lock.model import Lock
from envbuild.spec.recipe import Check, RecipeEnv
from envbuild.spec.recipe_calls import call_recipe
from envbuild.spec.resolve import Resolution

DEV = "dev"  # the name of the checks of project folders, beside the names of layers


def image_checks(resolution: Resolution, lock: Lock) -> list[tuple[str, Check]]:
    """Return each check with the name of its layer, or DEV. Raises SpecError of a recipe."""
    env = recipe_environment(resolution, lock)
    checks: list[tuple[str, Check]] = []
    for recipe in resolution.recipes:
        checks += ((recipe.name, check) for check in call_recipe(recipe, "verify", list, env))
    if resolution.spec.dev:
        from envbuild.verify.dev_checks import dev_checks

        checks += ((DEV, check) for check in dev_checks(resolution.spec.dev))
    return checks


def recipe_environment(resolution: Resolution, lock: Lock) -> RecipeEnv:
    from envbuild.build.plan.image_config import recipe_env

    return recipe_env(resolution, lock)
