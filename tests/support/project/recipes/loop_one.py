from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import Recipe


@dataclass(frozen=True, kw_only=True)
class Loop(Recipe):
    after: ClassVar[tuple[str, ...]] = ("loop-two",)
