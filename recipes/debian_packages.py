"""Debian packages that need no recipe of their own."""

import re
from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import Recipe, RecipeEnv, Refusal, Runtime

# Debian policy 5.6.1 and 5.6.12. A name that ends in - is none, and apt would remove the package before it.
PACKAGE = r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.](=[0-9][0-9A-Za-z.+:~-]*)?"


@dataclass(frozen=True, kw_only=True)
class DebianPackages(Recipe):
    """``debian-packages: [git, pdsh]``: names from the base's own archive, without recommended packages."""

    shorthand: ClassVar[str] = "packages"

    packages: tuple[str, ...] = ()

    def faults(self) -> dict[str, Refusal]:
        reason = "is not the name of a Debian package: a-z, 0-9, '+', '-' and '.', where needed with =VERSION after it"
        return {name: Refusal(reason) for name in self.packages if not re.fullmatch(PACKAGE, name)}

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=self.packages)
