"""Python packages from the package index that need no recipe of their own."""

from dataclasses import dataclass
from typing import ClassVar

from envbuild.recipe import Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class PythonPackages(Recipe):
    """``python-packages: [transformers, "datasets>=4"]``: PEP 508 requirements, resolved together with everything
    else in the venv."""

    shorthand: ClassVar[str] = "packages"

    packages: tuple[str, ...] = ()

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(python=self.packages)
