"""Pairs to rehearse: each recipe that compiles, with every version of its table and every provider that compiles it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from envbuild.build.blocks import hpccm
from envbuild.core.distributions import DISTRIBUTIONS
from envbuild.core.errors import EnvbuildError
from envbuild.spec import target as targets
from envbuild.spec.image_spec import ImageSpec
from envbuild.spec.recipe import Recipe, RecipeEnv
from envbuild.spec.recipe_loader import load_recipe
from envbuild.spec.recipe_options import option_fields
from tests.golden.test_recipes import NAMES, PROJECT, providers, sample
from tests.support.recipes import table

# Tables of versions that are not the `releases` of a class.
TABLES = ("RELEASES", "REVISIONS", "COMMITS")
# Projects that are compiled from the package index have no table: the versions that shipped images and facts name.
INDEX = {
    "antlr4-python3-runtime": ("4.8",),
    "deepspeed": ("0.19.8", "0.14.4"),
    "flash-attn": ("2.8.3.post2", "2.7.3", "2.5.6", "0.2.2"),
    "mpi4py": ("4.1.1", "4.0.3"),
    "transformer-engine": ("2.20.2",),
    "xformers": ("0.0.35",),
}


@dataclass(frozen=True)
class Pair:
    """A version of a recipe with a provider; `given` are the options that select it."""

    name: str
    version: str
    provider: str

    @property
    def key(self) -> str:
        return " ".join(filter(None, (self.name, self.version, self.provider)))

    @property
    def options(self) -> dict[str, str]:
        return {key: text for key, text in (("version", self.version), ("provider", self.provider)) if text}

    def spec(self) -> ImageSpec:
        """Return the sample image of the recipe, with this version. Raises EnvbuildError."""
        return sample(self.name, self.options)

    def made(self) -> tuple[Recipe, RecipeEnv]:
        """Return the recipe and its sample image, also where the image as a whole is refused."""
        spec = self.spec()
        distribution = DISTRIBUTIONS[spec.distribution]
        target = targets.load_target(spec.target, PROJECT)
        return spec.recipes[self.name], RecipeEnv(target, spec.python, spec.recipes, {}, distribution, spec.base)

    def text(self) -> str:
        """Return everything of the recipe that a rehearsal depends on: its sources, steps and checks."""
        made, env = self.made()
        with hpccm.hpccm_target(env.target.arch):
            commands = [step.command for step in hpccm.steps(made.build(env))]
        return repr((made.sources(env), commands, made.verify(env), made.extensions()))


def versions(name: str) -> tuple[str, ...]:
    """Return the versions of the recipe's table, newest first; one empty text for a recipe without one."""
    if name in INDEX:
        return INDEX[name]
    kind = load_recipe(PROJECT.find_recipe(name))
    found: Mapping[str, Any] = getattr(kind, "releases", {})
    if not found and "version" in option_fields(kind):
        module = table(name)
        found = next((getattr(module, key) for key in TABLES if isinstance(getattr(module, key, None), Mapping)), {})
    return tuple(found) or ("",)


def compiling(name: str) -> list[str]:
    """Return the recipe's providers, without the empty one that means another of them."""
    found = list(dict.fromkeys(options.get("provider", "") for options in providers(name) if "flavor" not in options))
    return [provider for provider in found if provider] or [""]


def pairs() -> Iterator[Pair]:
    """Yield all pairs that compile a source, in the order of the recipes and of their tables."""
    for name in NAMES:
        for provider in compiling(name):
            for version in versions(name):
                pair = Pair(name, version, provider)
                try:
                    made, env = pair.made()
                    sources = made.sources(env)
                except EnvbuildError:  # this provider has one version, and the option is refused
                    continue
                if made.builds and (sources.git or sources.archives or sources.sdists):
                    yield pair
