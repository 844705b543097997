"""Debian packages that need no recipe of their own."""

from dataclasses import dataclass
from typing import ClassVar

from envbuild.recipe import Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class DebianPackages(Recipe):
    """``debian-packages: [git, pdsh]``: names from the base's own archive, without recommended packages."""

    shorthand: ClassVar[str] = "packages"

    packages: tuple[str, ...] = ()

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=self.packages)
