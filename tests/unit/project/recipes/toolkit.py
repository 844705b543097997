from dataclasses import dataclass

from envbuild.recipe import Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class Toolkit(Recipe):
    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=("libc6",), core=(f"toolkit=={self.version or '1'}",), env={"PATH": "/opt/toolkit/bin"})
