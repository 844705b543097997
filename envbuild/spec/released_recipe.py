"""Recipes that compile a release from upstream's repository.

Such a recipe has a table of releases, newest first: version → full hash of the commit that upstream's tag names. A
version that is not in the table needs a commit in the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from envbuild.spec.recipe import Git, OptionError, Recipe, RecipeEnv, Refusal


def newest(requested: str, releases: Mapping[str, str]) -> str:
    """Return the release that `requested` names, or the newest that it is the beginning of (``1.20`` is 1.20.1), or "".

    If `requested` is empty, the newest of all.
    """
    if requested in releases:
        return requested
    for version in releases:
        if not requested or version == requested or version.startswith(f"{requested}."):
            return version
    return ""


@dataclass(frozen=True, kw_only=True)
class Released(Recipe):
    """Base of recipes of one repository with releases. A recipe with more providers calls `lacking` itself, for the
    provider that compiles."""

    upstream: ClassVar[str] = ""  # as its authors spell it (Open MPI)
    repository: ClassVar[str] = ""  # the origin: github:openucx/ucx
    releases: ClassVar[Mapping[str, str]] = {}
    tag: ClassVar[str] = "v{}"  # upstream's tag of a release
    left_out: ClassVar[str] = ""  # why submodules that are not fetched are not needed (`Git.left_out`)

    commit: str = ""

    def __post_init__(self) -> None:
        if self.commit and not self.version:  # compatibility is decided by version
            raise OptionError("'commit' needs the version of that commit", "write version: VERSION")

    @property
    def whole(self) -> str:
        """Return the version that is compiled; "" if no release matches."""
        return self.version if self.commit else newest(self.version, self.releases)

    @property
    def revision(self) -> str:
        """Return the hash: `commit` of the spec, else that of the release; "" if neither is known."""
        return self.commit or self.releases.get(self.whole, "")

    @property
    def submodules(self) -> tuple[str, ...] | Literal[False]:
        """Return the submodules of the source that are fetched (`Git.submodules`)."""
        return ("*",)

    def source(self) -> Git:
        """Return the repository at that commit. A commit of the spec's own has no tag."""
        tag = "" if self.commit or not self.whole else self.tag.format(self.whole)
        return Git(self.name, self.repository, self.revision, tag, self.submodules, self.left_out)

    def lacking(self) -> tuple[Refusal, ...]:
        """Return the refusal of a version without a known commit, or nothing."""
        if self.revision:
            return ()
        known = ", ".join(self.releases)
        hint = f"add its commit (version: {self.version}, commit: 40 hex digits), or take one of {known}"
        return (Refusal(f"the commit of {self.upstream} {self.version} is not known", hint),)

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        return self.lacking() if self.builds else ()


@dataclass(frozen=True, kw_only=True)
class DebianOrSource(Released):
    """Base of recipes with the providers ``debian`` (the distribution's package) and ``source``. The default is
    source if the spec has a version, else debian."""

    provider: Literal["", "debian", "source"] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.version and self.provider == "debian":
            why = f"'version' needs 'provider: source': the distribution has one version of {self.upstream}"
            raise OptionError(why, "write provider: source, or remove version")

    @property
    def builds(self) -> bool:
        return self.provider == "source" or (not self.provider and bool(self.version))
