from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class PythonThings(Recipe):
    shorthand: ClassVar[str] = "packages"

    packages: tuple[str, ...] = ()

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(python=self.packages)
