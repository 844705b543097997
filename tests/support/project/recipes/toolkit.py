from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class Toolkit(Recipe):
    package: ClassVar[str] = "toolkit"

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=("libc6",), core=(f"toolkit=={self.version or '1'}",), env={"PATH": "/opt/toolkit/bin"})
