"""Reader of GPT-NeoX's data sets."""

from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import VENV, Check, Git, Recipe, RecipeEnv, Runtime, Sources, python_wheel

NEEDS = ("jsonlines", "ujson", "zstandard")  # its setup.py
RELEASE = "0.0.20"


@dataclass(frozen=True, kw_only=True)
class LmDataformat(Recipe):
    """EleutherAI's fork, at the one commit that all revisions of GPT-NeoX pin.

    The index has the original under the same name and version. tools/preprocess_data.py imports it, training does not.
    """

    wheel: ClassVar[bool] = True

    commit: str = "4eec05349977071bf67fc072290b95e31c8dd836"

    @property
    def git(self) -> Git:
        return Git("lm-dataformat", "github:EleutherAI/lm_dataformat", self.commit)

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(python=("setuptools", "wheel"), git=(self.git,), gives=(f"lm-dataformat=={RELEASE}",))

    def build(self, env: RecipeEnv) -> list[Any]:
        return python_wheel("lm-dataformat", git=self.git)

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(python=NEEDS)

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = "import lm_dataformat; print(lm_dataformat.Reader.__name__)"
        return [Check("lm-dataformat: imports", f"{VENV}/bin/python -c '{program}'", "^Reader$")]
