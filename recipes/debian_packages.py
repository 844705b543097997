"""Debian packages that need no recipe of their own."""

import re
from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import Recipe, RecipeEnv, Refusal, Runtime

# Debian policy 5.6.1 and 5.6.12. A name with a final - is not allowed: apt would remove that package.
PACKAGE = r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.](=[0-9][0-9A-Za-z.+:~-]*)?"


@dataclass(frozen=True, kw_only=True)
class DebianPackages(Recipe):
    """Packages of the distribution, without recommended ones: ``debian-packages: [git, pdsh]``."""

    shorthand: ClassVar[str] = "packages"

    packages: tuple[str, ...] = ()

    def faults(self) -> dict[str, Refusal]:
        reason = "is not the name of a Debian package: a-z, 0-9, '+', '-' and '.', then =VERSION if needed"
        return {name: Refusal(reason) for name in self.packages if not re.fullmatch(PACKAGE, name)}

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=self.packages)
