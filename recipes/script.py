"""Commands of the spec itself, for a step that no recipe has."""

import hashlib
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import WORK, Check, Recipe, RecipeEnv, Refusal, Sources, comment, shell, written

FOLDERS = ("/opt/", "/srv/", "/usr/local/")


@dataclass(frozen=True, kw_only=True)
class Script(Recipe):
    """The one-off step of a Dockerfile: commands that fill one folder, without network.

    - `run`: the lines of a script for ``/bin/sh -eu``, in the folder `into`: literal, and part of the unit's key.
    - `into`: the folder that becomes a layer; nothing else of what the script writes gets into the image.
    - `packages`: Debian packages that the script needs.

    The evidence of an image, and `envbuild show`, name the script and its digest: its effect is declared nowhere. Write
    a recipe for a component that is downloaded, has a version, or is needed twice.
    """

    shorthand: ClassVar[str] = "run"
    verbatim: ClassVar[tuple[str, ...]] = ("run",)

    run: tuple[str, ...]
    into: str = "/opt/script"
    packages: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:  # type: ignore[override]
        return self.into

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.run)

    def faults(self) -> dict[str, Refusal]:
        parts = self.into.split("/")
        plain = all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", part) for part in parts[1:])
        if plain and self.into.startswith(FOLDERS):
            return {}
        return {self.into: Refusal(f"is not a folder below {', '.join(FOLDERS)}", "write into: /opt/NAME")}

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(debian=self.packages)

    def build(self, env: RecipeEnv) -> list[Any]:
        file = f"{WORK}/script.sh"
        commands = [f"mkdir -p {WORK} {self.into}", written(file, self.text), f"cd {self.into}", f"/bin/sh -eu {file}"]
        return [comment(f"script: commands of the spec fill {self.into}"), shell(commands=commands)]

    def verify(self, env: RecipeEnv) -> list[Check]:
        (remark,) = self.remarks()
        return [Check(f"script: {remark}", f"find {self.into} -mindepth 1 -print -quit 2>/dev/null", r"\S")]

    def remarks(self) -> tuple[str, ...]:
        digest = hashlib.sha256(self.text.encode()).hexdigest()
        return (f"{self.into} is made by commands of the spec (sha256 {digest[:12]}), not by a recipe",)
