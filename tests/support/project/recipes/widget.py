"""A recipe with an option of every type."""

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Literal

from envbuild.sdk import Archive, Recipe, RecipeEnv, Runtime, Sources


class Mode(Enum):
    FAST = "fast"
    SMALL = "small"


@dataclass(frozen=True, kw_only=True)
class Widget(Recipe):
    prefix: ClassVar[str] = "/opt/widget"
    after: ClassVar[tuple[str, ...]] = ("toolkit",)

    version: str = ""
    jobs: int = 1
    ratio: float = 0.5
    shared: bool = True
    level: Literal["low", "high"] = "low"
    mode: Mode = Mode.FAST
    plugins: tuple[str, ...] = ()
    flags: dict[str, str] = field(default_factory=dict)
    note: str | None = None

    def __post_init__(self) -> None:
        if self.jobs > 64:
            raise ValueError("more than 64 jobs are too many")

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(("g++", "make"), archives=(Archive("widget", "github:acme/widget@v1", "widget-1.tar.gz"),))

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(
            debian=("libwidget1", "libc6"),
            env={"WIDGET_HOME": "/opt/widget", "PATH": "/opt/widget/bin"},
            libraries=("/opt/widget/lib",),
            files={"/etc/widget.conf": self.mode.value},
        )
