"""The layers of an image, checked against its hardware, its base, and each other."""

from __future__ import annotations

from envbuild.core.errors import ConflictError, Finding
from envbuild.spec.image_spec import ImageSpec
from envbuild.spec.library_conflicts import SEARCH_ORDER, find_second_copies
from envbuild.spec.recipe import RecipeEnv, Refusal
from envbuild.spec.recipe_calls import call_recipe
from envbuild.spec.target import Target


def check_compatible(spec: ImageSpec, target: Target, env: RecipeEnv | None = None) -> None:
    """Raise ConflictError for recipes that are incompatible with this image: with its hardware, its base, or the other
    recipes. `env`: what the recipes know about it, if that was made already."""
    env = env or spec.recipe_env(target)
    findings: list[Finding] = []
    owners: dict[str, str] = {}
    for name, recipe in spec.recipes.items():
        where = spec.where.get(name, "")
        if recipe.arch_specific and not target.sm:
            because = "because it compiles for a GPU architecture and this target has no GPU"
            hint = f"take a target with a GPU, or remove '{name}'"
            findings.append(
                Finding(f"layer '{name}' cannot be built for target '{target.name}', {because}", where, hint)
            )
        refusals: tuple[Refusal, ...] = call_recipe(recipe, "refusals", tuple, env)
        for refusal in refusals:
            hint = refusal.hint or f"change its options, or remove '{name}'"
            message = f"layer '{name}' is incompatible with this image, because {refusal.because}"
            findings.append(Finding(message, where, hint))
        for library in call_recipe(recipe, "provides", tuple, env):
            other = owners.setdefault(str(library), name)
            if other != name:
                because = f"both contain {library}, {SEARCH_ORDER}"
                findings.append(
                    Finding(f"layers '{other}' and '{name}' are incompatible: {because}", where, "keep one of them")
                )
    findings += find_second_copies(env, spec.where)
    if findings:
        raise ConflictError.of(findings)
