"""Fully sharded data parallel training, for metaseq."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from envbuild.sdk import (
    Check,
    Git,
    OptionError,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    imports,
    python_wheel,
    unknown_words,
)


class Revision(NamedTuple):
    """A commit, the release in its version.py, and its tag."""

    commit: str
    release: str
    tag: str = ""


REVISIONS = {
    "0.4.13": Revision("50b06d251730ca6e9a7d0aea9fbba3ad9391c0d4", "0.4.13", "v0.4.13"),
    # Branches that OPT's instructions check out; each is a commit of 2022 that is in no release.
    "may24": Revision("91132c7e997c5affe97ce002e52cadd798220b06", "0.4.6"),
    "overlap": Revision("191553190d73a5ef4a48687c889d4b1d94532135", "0.4.6"),
}


@dataclass(frozen=True, kw_only=True)
class Fairscale(Recipe):
    """FairScale from its repository, with which metaseq trains (fully sharded data parallel).

    - `version`: ``may24`` (upstream's branch fixing_memory_issues_with_keeping_overlap_may24, which metaseq's image and
      instructions check out), ``overlap`` (the branch without _may24, in cyclecloud-llm) or the release ``0.4.13``.
    - `commit`, `release`: another revision, and the version in its version.py.

    It is installed as a wheel: metaseq compares its version, and an editable installation has none.
    """

    wheel: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("torch",)

    version: str = "may24"
    commit: str = ""
    release: str = ""

    def __post_init__(self) -> None:
        if bool(self.commit) != bool(self.release):
            raise OptionError(
                "'commit' and 'release' require each other", "write both: 'release' is the version in its version.py"
            )

    def faults(self) -> dict[str, Refusal]:
        if self.commit:
            return {}
        other = "for another revision write commit: and release:"
        return unknown_words((self.version,), REVISIONS, "is not a known revision", other=other)

    @property
    def revision(self) -> Revision:
        return Revision(self.commit, self.release) if self.commit else REVISIONS[self.version]

    @property
    def git(self) -> Git:
        return Git("fairscale", "github:facebookresearch/fairscale", self.revision.commit, self.revision.tag)

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(python=("setuptools", "wheel"), git=(self.git,), gives=(f"fairscale=={self.revision.release}",))

    def build(self, env: RecipeEnv) -> list[Any]:
        # setup_requires lists ninja, which only its CUDA extension uses, and would need the network
        return python_wheel("fairscale", git=self.git, before=["sed -i /setup_requires=/d setup.py"])

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(python=("numpy",))

    def verify(self, env: RecipeEnv) -> list[Check]:
        expect = self.revision.release.replace(".", r"\.")
        show = "fairscale.__version__, fairscale.nn.FullyShardedDataParallel.__name__"
        return [imports("fairscale", ("fairscale.nn",), show=show, expect=rf"{expect}.*FullyShardedDataParallel")]
