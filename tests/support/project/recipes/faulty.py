"""Fails when its runtime is requested."""

from dataclasses import dataclass

from envbuild.sdk import Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class Faulty(Recipe):
    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=(env.recipes["missing"].version,))
