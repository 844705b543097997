"""Recipes that compile a release from upstream's repository.

Such a recipe holds a table of releases, newest first: version → full hash of the commit that upstream's tag names. A
version that is not in the table needs the commit beside it in the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from envbuild.spec.recipe import Git, OptionError, Recipe, RecipeEnv, Refusal


def newest(requested: str, releases: Mapping[str, str]) -> str:
    """Return the newest release that `requested` names (``1.20`` takes 1.20.1).

    Of all releases if it is empty; "" if none matches.
    """
    for version in releases:
        if not requested or version == requested or version.startswith(f"{requested}."):
            return version
    return ""


@dataclass(frozen=True, kw_only=True)
class Released(Recipe):
    """Base of recipes of one repository with releases. A recipe that has other providers too calls `lacking` itself,
    for the one that compiles."""

    upstream: ClassVar[str] = ""  # as its authors spell it (Open MPI)
    repository: ClassVar[str] = ""  # the origin: github:openucx/ucx
    releases: ClassVar[Mapping[str, str]] = {}
    tag: ClassVar[str] = "v{}"  # how upstream spells a release's

    commit: str = ""

    def __post_init__(self) -> None:
        if self.commit and not self.version:  # what goes with it is judged by version
            raise OptionError("a commit alone does not say which version it is", "write version: beside commit:")

    @property
    def whole(self) -> str:
        """Return the version that is compiled; "" where no release is known by that name."""
        return self.version if self.commit else newest(self.version, self.releases)

    @property
    def revision(self) -> str:
        """Return the hash: `commit` of the spec, else that of the release; "" where none is known."""
        return self.commit or self.releases.get(self.whole, "")

    @property
    def submodules(self) -> tuple[str, ...]:
        """Return the submodules that the source needs (`Git.submodules`)."""
        return ()

    def source(self) -> Git:
        """Return the repository at that commit. A commit of the spec's own has no tag."""
        tag = "" if self.commit or not self.whole else self.tag.format(self.whole)
        return Git(self.name, self.repository, self.revision, tag, self.submodules)

    def lacking(self) -> tuple[Refusal, ...]:
        """Return the refusal of a version without a known commit, or nothing."""
        if self.revision:
            return ()
        known = ", ".join(self.releases)
        hint = f"write its commit beside it (version: {self.version}, commit: 40 hex digits), or take one of {known}"
        return (Refusal(f"no commit is known of {self.upstream} {self.version}", hint),)

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        return self.lacking() if self.builds else ()


@dataclass(frozen=True, kw_only=True)
class DebianOrSource(Released):
    """Base of those that the distribution has as well: ``debian``, its package, or ``source``. Left out, `provider` is
    source for an image with a version."""

    provider: Literal["", "debian", "source"] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.version and self.provider == "debian":
            why = f"the distribution has one version of {self.upstream}"
            raise OptionError(why, "leave version out, or take provider: source")

    @property
    def builds(self) -> bool:
        return self.provider == "source" or (not self.provider and bool(self.version))
