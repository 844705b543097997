"""Wants the variable and the file of widget, but installs nothing."""

from dataclasses import dataclass

from envbuild.sdk import Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class Meddler(Recipe):
    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(env={"WIDGET_HOME": "/opt/meddler"}, files={"/etc/widget.conf": "meddler"})
