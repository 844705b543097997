"""Wants the place, the variable and the file of widget."""

from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class Clash(Recipe):
    prefix: ClassVar[str] = "/opt/widget"

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(env={"WIDGET_HOME": "/opt/clash"}, files={"/etc/widget.conf": "clash"})
