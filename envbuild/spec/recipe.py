"""Recipes: one component, one file, one class.

A recipe is a frozen dataclass in ``recipes/NAME.py`` whose fields are the keys that a spec may write under ``layers:
NAME:``. It states its inputs (`sources`), its build (`build`, HPCCM primitives), the needs of the finished image
(`runtime`) and the checks of its presence (`verify`). It only returns values: it reads no files and runs no commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from envbuild.core.distributions import DISTRIBUTIONS, Distribution, is_image

if TYPE_CHECKING:
    from envbuild.spec.target import Target

VENV = "/opt/venv"


@dataclass(frozen=True, slots=True)
class Archive:
    """A source that is one file: a release tarball, or an sdist named by its origin.

    In the build it is /run/envbuild/archives/`file`; `name` is the component. `origin` names the source without a
    host (``github:openucx/ucx@v1.20.1``, ``debian:pool/main/p/…``); a site maps origins to mirrors. `sha256` may be
    empty: the lock then computes and records it.
    """

    name: str
    origin: str
    file: str
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Git:
    """A source that is one commit of a repository: locked as a tarball that is the same on every machine.

    `name` is the folder in the tarball; `origin` names the repository without a host
    (``github:openucx/ucx``); `commit` is its full hash (40 hex digits), `tag` what upstream calls it (a lock is refused
    when that tag now names another commit). `submodules` are the paths of those that are fetched; ``("*",)``, the
    default, is all of them, recursively, and False is none. A lock of a source with submodules that are not fetched is
    refused unless `left_out` is the reason why the build does not need them.
    """

    name: str
    origin: str
    commit: str
    tag: str = ""
    submodules: tuple[str, ...] | Literal[False] = ("*",)
    left_out: str = ""

    def __post_init__(self) -> None:
        if self.submodules is not False and not isinstance(self.submodules, tuple):
            raise ValueError(f'submodules={self.submodules!r} is not ("*",), a tuple of paths, or False')

    @property
    def fetched_submodules(self) -> tuple[str, ...]:
        """The paths of `submodules`; ``*`` is all of them."""
        return self.submodules or ()

    @property
    def file(self) -> str:
        """The tarball's name below /run/envbuild/archives."""
        return f"{self.name}-{self.commit[:12]}.tar"


@dataclass(frozen=True, slots=True)
class PipSource:
    """A source distribution of the package index, by the name of its project (``flash-attn``).

    `requirement` is what ``Sources.sdists`` lists; `python_wheel` finds the file, whose name may be spelt with
    underscores, dots or capitals.
    """

    name: str
    version: str = ""

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}" if self.version else self.name

    @property
    def found(self) -> str:
        """Return the word of a command that is the path of the file in a unit."""
        pattern = re.sub(r"[-_.]+", "[-_.]", self.name)
        return f'"$(find /run/envbuild/sdists/ -iname {shlex.quote(f"{pattern}-[0-9]*.tar.gz")})"'


@dataclass(frozen=True, slots=True)
class GitProject:
    """A Python project in a repository, which a spec names (``acme @ git+https://HOST/REPOSITORY@v1``).

    `ref` is a commit (40 hex digits), or a tag, whose commit the lock records. `subfolder` is where the project is in
    the repository. Its version, its requirements and those of its build are read from its files when it is locked.
    """

    name: str
    origin: str
    ref: str
    subfolder: str = ""

    @property
    def commit(self) -> str:
        """The commit, if the spec names one."""
        return self.ref if re.fullmatch(r"[0-9a-f]{40}", self.ref) else ""

    @property
    def tag(self) -> str:
        return "" if self.commit else self.ref

    @property
    def tag_version(self) -> str:
        """The version that the tag states (``v1.2`` → ``1.2``), or ""."""
        return (
            found[1] if (found := re.fullmatch(r"v?(\d+(?:\.\d+)*(?:(?:a|b|rc|\.post|\.dev)\d+)*)", self.tag)) else ""
        )

    @property
    def file(self) -> str:
        """The tarball's name below /run/envbuild/archives."""
        return f"{self.name}-{self.commit[:12] or self.tag.replace('/', '-')}.tar"


@dataclass(frozen=True, slots=True)
class AptRepository:
    """A vendor's archive of Debian packages.

    `origin` names it without a host (``apt:nvidia-cuda/ubuntu2204``); a site maps it to an address. `suite` and
    `components` are apt's words (sources.list(5)); a flat repository has the suite ``./`` and no components. `key` is
    the fingerprint (40 hex digits) of the OpenPGP key that signs it, `key_file` where the repository offers that key.
    A component of the distribution's own archive (``debian:trixie/non-free``) is signed with its keys: `key` is empty.
    """

    origin: str
    suite: str
    components: tuple[str, ...]
    key: str
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class PythonIndex:
    """A vendor's package index (``pip:pytorch/cu113``, ``pip:aws-neuron``). `packages` are installed from it
    only: the package index has unrelated projects with these names."""

    origin: str
    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sources:
    """The inputs of a recipe.

    A build unit gets Debian packages, Python requirements of the build (PEP 508), sdists from the package index
    (``mpi4py==4.1.1``, compiled here: their own wheels are refused), archives, and commits. `gives` are the packages
    whose wheels the unit builds from archives and commits (``apex==0.1``), so that the venv does not take them from an
    index. `projects` are commits, too, whose name, version and requirements the lock reads from their files.
    `repositories` and `indexes` are available to the whole image. `devel` are Python requirements of
    `Recipe.devel`, locked in versions that are compatible with the image. `replaces` are packages that those of
    `debian` depend on and the unit does not need, as in `Runtime`: the driver's libraries.
    """

    debian: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    sdists: tuple[str, ...] = ()
    archives: tuple[Archive, ...] = ()
    git: tuple[Git, ...] = ()
    gives: tuple[str, ...] = ()
    repositories: tuple[AptRepository, ...] = ()
    indexes: tuple[PythonIndex, ...] = ()
    devel: tuple[str, ...] = ()
    projects: tuple[GitProject, ...] = ()
    replaces: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Runtime:
    """Needs of the finished image: Debian packages, Python requirements (`core`: those of the large venv unit with
    torch, `toolkit`: those of the unit below it, CUDA's own wheels), environment, folders of the loader
    (ld.so.conf.d), files (path → content), `wheels` of the project (paths relative to the folder of the spec).

    `replaces`: Debian package → version of the component that replaces it, in the image and for packages that
    depend on it: dpkg gets an empty package of that name. Only for a library with the same SONAME. If the
    distribution's packages require a newer version, the real package is installed instead."""

    debian: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    core: tuple[str, ...] = ()
    toolkit: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    replaces: Mapping[str, str] = field(default_factory=dict)
    wheels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A verify line: a command in the finished image that must exit 0 and whose output must contain `expect` (a regular
    expression)."""

    name: str
    command: str
    expect: str = ""
    tier: str = "run"  # audit | run | gpu | fabric


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason against an option, or against a recipe in an image: `because` ends the sentence that begins with the
    option or the layer; `hint` is what the user can type (may be empty)."""

    because: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.because}; {self.hint}" if self.hint else self.because


class OptionError(ValueError):
    """Options of a recipe that are incompatible, raised by its ``__post_init__``. `hint` is what the user can type."""

    def __init__(self, because: str, hint: str = "") -> None:
        super().__init__(because)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class RecipeEnv:
    """Facts about the image that a recipe may use. `recipes` are all recipes of the image by name; `versions` are
    locked versions by package name, empty until there is a lock (only environment and verify lines may depend on
    them)."""

    target: Target
    python: str
    recipes: Mapping[str, Recipe]
    versions: Mapping[str, str] = field(default_factory=dict)
    distribution: Distribution = DISTRIBUTIONS["debian:13"]
    base: str = "debian:13"

    def has(self, name: str) -> bool:
        return name in self.recipes

    def prefix_of(self, name: str) -> str:
        """Return the folder that layer `name` is compiled into; "" if the image has no such layer, or does not
        compile it."""
        layer = self.recipes.get(name)
        return layer.prefix if layer and layer.builds else ""

    @property
    def on_image(self) -> bool:
        """Return whether the base is a third-party image, not a distribution made from packages."""
        return is_image(self.base)

    @property
    def has_nvcc(self) -> bool:
        """Return whether jobs find CUDA's compiler in the finished image."""
        return getattr(self.recipes.get("cuda"), "flavor", "") == "devel"

    @property
    def setuptools(self) -> str:
        """Return the requirement of builds with setuptools: 77 reads current pyproject.toml files and runs on Python
        3.9 and later. torch before 2.2 imports pkg_resources to compile extensions, which 82 no longer has."""
        if int(self.python.partition(".")[2]) < 9:  # the last for Python 3.8 is 75
            return "setuptools"
        release = re.match(r"(\d+)\.(\d+)", getattr(self.recipes.get("torch"), "version", ""))
        old = release and (int(release[1]), int(release[2])) < (2, 2)
        return "setuptools>=77,<82" if old else "setuptools>=77"

    @property
    def site_packages(self) -> str:
        """Folder of the Python packages of the image's venv."""
        return f"{VENV}/lib/python{self.python}/site-packages"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Base of all recipes. `shorthand` is the field that a bare value in a spec sets (``cuda: "13.2"``)."""

    name: ClassVar[str] = ""  # set from the file's name
    shorthand: ClassVar[str] = "version"
    after: ClassVar[tuple[str, ...]] = ()  # recipes that are built before this one if the image has them
    requires: ClassVar[tuple[str, ...]] = ()  # recipes that the image must have
    package: ClassVar[str] = ""  # the locked package whose version is the component's, for texts
    prefix: ClassVar[str] = ""  # /opt/NAME when build() installs into a prefix
    programs: ClassVar[tuple[str, ...]] = ()  # folders of the prefix with programs ("bin"): they are added to PATH
    verbatim: ClassVar[
        tuple[str, ...]
    ] = ()  # options that are contents of files: neither a shell nor enroot reads them
    wheel: ClassVar[bool] = False  # build() leaves wheels in /run/envbuild/out
    component: ClassVar[str] = ""  # the matrix's component of `version`; resolve picks a version that is left out
    meets: ClassVar[tuple[str, ...]] = ()  # conditions (ids of facts) that build() satisfies
    arch_specific: ClassVar[bool] = False  # build() depends on the target's GPU architecture
    on_toolkit: ClassVar[bool] = False  # build() needs the venv unit of the CUDA wheels below it
    on_venv: ClassVar[bool] = False  # build() needs that and the venv unit with torch below it
    # major version of the gcc that units on top of this one compile with; "": that of the distribution
    host_compiler: ClassVar[str] = ""
    memory_gb: ClassVar[float] = 0.5  # peak memory of one compile job
    cpu_minutes: ClassVar[float] = 0.0  # of a whole build, measured on one machine; 0: not measured

    version: str = ""

    @property
    def builds(self) -> bool:
        """Return whether build() installs files with these options; recipes with a provider override it."""
        return bool(self.prefix or self.wheel)

    @property
    def bins(self) -> tuple[str, ...]:
        """Return the folders that it adds to PATH: those of `programs`, if it builds."""
        return tuple(f"{self.prefix}/{folder}" for folder in self.programs) if self.prefix and self.builds else ()

    def faults(self) -> dict[str, Refusal]:
        """Return texts of options that are invalid → the reason, reported at their place in the spec before anything is
        locked.

        Options that are incompatible with each other are an `OptionError` of ``__post_init__``.
        """
        return {}

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        """Return the reasons why this recipe, with its options, is incompatible with this image.

        For example a CPU architecture or distribution that its provider does not serve. Each is the end of a sentence
        "…, because", reported at the layer's place in the spec.
        """
        return ()

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        """Return libraries that it puts on the loader's path (``libucp``): two recipes may not provide the same one."""
        return ()

    def promised(self, env: RecipeEnv) -> tuple[str, ...]:
        """Return paths (shell patterns) that the base image must contain if this recipe takes its component from the
        base."""
        return ()

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        """Return the request to the version matrix: component → constraint (``2.15``, ``>=2.1``, ``*``)."""
        return {self.component: self.version or "*"} if self.component else {}

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources()

    def build(self, env: RecipeEnv) -> list[Any]:
        """Return HPCCM primitives and building blocks (of `envbuild.sdk`); empty: nothing is compiled."""
        return []

    def devel(self, env: RecipeEnv) -> list[Any]:
        """Return the build-only part: primitives of a unit below that of `build`, at the same prefix, not in the image.

        The Python packages of ``Sources.devel`` are in the folder ``python`` of the prefix when it starts, and are
        removed from it afterwards. Without any, the unit has the Debian packages of the build.
        """
        return []

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime()

    def extensions(self) -> tuple[str, ...]:
        """Return extension modules (dotted names) that must exist after the build: builds often drop one without an
        error."""
        return ()

    def verify(self, env: RecipeEnv) -> list[Check]:
        return []

    def remarks(self) -> tuple[str, ...]:
        """Return what `show` states about this layer, in the image as well: what no version and no package name
        declares."""
        return ()


def unknown_words(words: Iterable[str], known: Collection[str], what: str, *, other: str = "") -> dict[str, Refusal]:
    """Return the result of `faults` for those of `words` that are not `known`.

    what: the end of the message about each ("is not an op that …").
    other: an alternative for the hint, after the closest known word and the list of all.
    """
    from envbuild.core.yaml_reader import one_of

    hints = {word: one_of(word, known, "there are") for word in words if word not in known}
    return {word: Refusal(what, "; ".join(filter(None, (hint, other)))) for word, hint in hints.items()}
