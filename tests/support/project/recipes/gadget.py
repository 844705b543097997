"""Needs another recipe, compiles for a GPU, builds a wheel."""

from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import Recipe, RecipeEnv, Runtime, Sources


@dataclass(frozen=True, kw_only=True)
class Gadget(Recipe):
    requires: ClassVar[tuple[str, ...]] = ("toolkit",)
    wheel: ClassVar[bool] = True
    arch_specific: ClassVar[bool] = True

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(python=("setuptools", "ninja"), sdists=("gadget==2.0",))

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(python=("numpy",))
