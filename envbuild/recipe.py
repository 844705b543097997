"""Recipes: one component, one file, one class.

A recipe is a frozen dataclass in ``recipes/NAME.py`` whose fields are the keys that a spec may write under ``layers:
NAME:``. It says what it needs (`sources`), how it is built (`build`, HPCCM primitives), what the finished image needs
beside that (`runtime`) and how one sees that it is there (`verify`). Nothing in it touches the world.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from envbuild.target import Target

VENV = "/opt/venv"


@dataclass(frozen=True, slots=True)
class Archive:
    """A source that is one file: a release tarball, or an sdist given by its origin.

    `name` is the folder under /run/envbuild/src in which the build sees it unpacked. `origin` names where it comes
    from without a host (``github:openucx/ucx@v1.20.1``); a site maps origins to mirrors. `sha256` may be empty: then
    the lock finds and records it.
    """

    name: str
    origin: str
    file: str
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Sources:
    """What a build unit gets: Debian packages, Python requirements of the build (PEP 508), sdists from the package
    index (``mpi4py==4.1.1``, compiled here: their own wheels are refused), archives."""

    debian: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    sdists: tuple[str, ...] = ()
    archives: tuple[Archive, ...] = ()


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the finished image needs: Debian packages, Python requirements (`core`: those of the first, large venv
    unit), environment, folders for the loader (ld.so.conf.d), files (path → content)."""

    debian: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    core: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """A verify line: a command in the finished image that must exit 0 and whose output must hold `expect` (a regular
    expression)."""

    name: str
    command: str
    expect: str = ""
    tier: str = "run"  # audit | run | gpu | fabric


@dataclass(frozen=True, slots=True)
class RecipeEnv:
    """What a recipe may know of the image it stands in. `recipes` are all recipes of the image by name; `versions` are
    locked versions by package name, empty until there is a lock (only environment and verify lines may depend on
    them)."""

    target: Target
    python: str
    recipes: Mapping[str, Recipe]
    versions: Mapping[str, str] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return name in self.recipes


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Base of all recipes. `shorthand` is the field that a bare value in a spec sets (``cuda: "13.2"``)."""

    name: ClassVar[str] = ""  # set from the file's name
    shorthand: ClassVar[str] = "version"
    after: ClassVar[tuple[str, ...]] = ()  # recipes that stand below this one when the image has them
    requires: ClassVar[tuple[str, ...]] = ()  # recipes that the image must have
    package: ClassVar[str] = ""  # the locked package whose version is the component's, for people
    prefix: ClassVar[str] = ""  # /opt/NAME when build() installs into a prefix
    wheel: ClassVar[bool] = False  # build() leaves wheels in /run/envbuild/out
    component: ClassVar[str] = ""  # whose version `version` is, in the matrix's words; left out, resolve picks it
    meets: ClassVar[tuple[str, ...]] = ()  # conditions (ids of facts) that build() sees to
    arch_specific: ClassVar[bool] = False  # build() depends on the target's GPU architecture
    on_venv: ClassVar[bool] = False  # build() needs the first venv unit (torch, CUDA wheels) below it
    memory_gb: ClassVar[float] = 0.5  # one compile job at its largest

    version: str = ""

    def faults(self) -> dict[str, str]:
        """Texts among the options that cannot be right → why; told at their place in the spec, before anything is
        locked. What is wrong with the options as a whole is a ValueError of ``__post_init__``."""
        return {}

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        """What this recipe says to the version matrix: component → what it may be (``2.15``, ``>=2.1``, ``*``)."""
        return {self.component: self.version or "*"} if self.component else {}

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources()

    def build(self, env: RecipeEnv) -> list[Any]:
        """HPCCM primitives and building blocks (from `envbuild.plan.bridge`); empty: nothing is compiled."""
        return []

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime()

    def extensions(self) -> tuple[str, ...]:
        """Extension modules (dotted names) that must exist afterwards: builds that drop one in silence are common."""
        return ()

    def verify(self, env: RecipeEnv) -> list[Check]:
        return []
