"""Projects: their own images, recipes and targets, and those that ship with envbuild. A project's own override the
others.

A project is the current folder, or the nearest one above it, that contains ``images/*.yaml``, ``recipes/*.py``,
``facts/*.yaml``, or a ``site.yaml`` with a ``schema:`` line. Because recipes are programs, a folder above the current
one that every user can write is never a project, and a project that others can change is refused
(`envbuild.spec.trust`). In a folder of a group above the current one, what other members put there is left out instead,
and a ``site.yaml`` that they cannot change is used alone.

Locks are stored beside their specs. The locks of specs in an installed wheel are read-only, so a new lock for one is
written to the project's ``images/``, or without a project to ``$XDG_DATA_HOME/envbuild/locks``
(``~/.local/share/envbuild/locks``)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.console import Reporter, default_reporter
from envbuild.core.errors import SpecError
from envbuild.core.paths import PACKAGE
from envbuild.core.yaml_reader import closest, did_you_mean, short
from envbuild.matrix import FACTS, fact_files
from envbuild.spec.project_folder import (
    SITE,
    find_own_files,
    is_of_group,
    is_project,
    is_replaceable,
    is_world_writable,
    list_folder,
)
from envbuild.spec.trust import check_file, find_distrusted, untrusted_project

INSTALLED = (PACKAGE / "shipped").is_dir()
SHIPPED = (
    PACKAGE / "shipped" if INSTALLED else PACKAGE.parent
)  # in a checkout, images/ and recipes/ are beside the package

NAME = r"[a-z0-9][a-z0-9._-]{0,99}"
_left_out: set[Path] = set()  # reported in this process: a command looks for its project more than once


@dataclass(frozen=True, slots=True)
class Project:
    """`root` is the project's folder, or None outside of any. `drivers`: target → the driver that the site states for
    its nodes, ``*`` for all others. `site_alone`: a folder of which nothing but its ``site.yaml`` is used."""

    root: Path | None = None
    drivers: tuple[tuple[str, str], ...] = ()
    site_alone: Path | None = None

    @property
    def site_folder(self) -> Path | None:
        """The folder whose ``site.yaml``, if there is one, is the project's."""
        return self.root or self.site_alone

    @classmethod
    def find(cls, start: Path | None = None, reporter: Reporter | None = None) -> Project:
        """Return the project that contains `start` (the current folder). Raises SpecError for one that others than the
        caller can change: no command uses anything of it. The folder of envbuild itself is trusted: it runs already.

        What members of a group put into another user's folder above `start` is left out, and reported once.
        """
        try:
            here = (start or Path.cwd()).absolute()
        except FileNotFoundError:  # the current folder was removed
            return cls()
        for folder in (here, *here.parents):
            if (folder != here and is_world_writable(folder)) or not is_project(folder):
                continue
            if folder == SHIPPED or not (distrusted := find_distrusted(folder)):
                return cls(folder)
            error = untrusted_project(folder, distrusted)
            if folder == here or not is_of_group(folder):
                raise error
            own, site = find_own_files(folder), folder / SITE
            if own and (own != [site] or is_replaceable(site)):
                raise error
            _report_left_out(folder, error, bool(own), reporter or default_reporter())
            if own:
                return cls(site_alone=folder)
        return cls()

    @classmethod
    def of(cls, name: str, reporter: Reporter | None = None) -> Project:
        """Return the project for a spec given by name or path: `containing` it, else that of the current folder. Raises
        SpecError as `find`."""
        return (looks_like_path(name) and cls.containing(name, reporter)) or cls.find(reporter=reporter)

    @classmethod
    def containing(cls, path: str, reporter: Reporter | None = None) -> Project | None:
        """Return the project in which the file is. None: it is in no project, or ships with envbuild, so it belongs to
        all of them. Raises SpecError as `find`."""
        folder = Path(os.path.realpath(Path(path).parent))  # Path.resolve raises RuntimeError for links in a circle
        project = cls.find(folder, reporter)
        return project if project.site_folder and project.root != SHIPPED else None

    def images(self) -> tuple[str, ...]:
        return self._names("images", ".yaml")

    def recipes(self) -> tuple[str, ...]:
        return tuple(stem.replace("_", "-") for stem in self._names("recipes", ".py"))

    def targets(self) -> tuple[str, ...]:
        return self._names("targets", ".yaml")

    def find_image(self, name: str) -> Path:
        """Return the spec called `name`, or the file at that path. Raises SpecError."""
        if not looks_like_path(name):
            return self._find("images", name)
        path = Path(name)
        if not path.exists() and path.stem in self.images():
            raise SpecError("no such file", f"did you mean the image '{path.stem}'?", name)
        return path

    def misnamed(self) -> tuple[Path, ...]:
        """Return files of the project's images/ that look like specs and have an invalid name."""
        files = [] if self.root is None else list_folder(self.root / "images")
        named = (path for path in files if path.suffix in (".yaml", ".yml") and path.is_file())
        return tuple(sorted(path for path in named if path.suffix == ".yml" or not is_valid_name(path.stem)))

    def find_recipe(self, name: str) -> Path:
        """Return the file of recipe `name`; ``nccl-tests`` is ``nccl_tests.py``. Raises SpecError."""
        return self._find("recipes", name)

    def find_target(self, name: str) -> Path:
        """Return the file of hardware target `name`. Raises SpecError."""
        return self._find("targets", name)

    def driver_of(self, target: str) -> str:
        """Return the driver that the site states for the nodes of a target; empty: none."""
        drivers = dict(self.drivers)
        return drivers.get(target) or drivers.get("*", "")

    def facts(self) -> tuple[Path, ...]:
        """Return folders of fact files (`envbuild.matrix`): those that ship with envbuild, then the project's own,
        whose facts replace those of the same id. Raises SpecError for a fact file that others can change."""
        own = [] if self.root is None else [self.root / "facts"]
        for path in (path for folder in own for path in fact_files(folder)):
            self.check_file(path)
        return (FACTS, *(folder for folder in own if folder.is_dir()))

    def check_file(self, path: Path) -> None:
        """Raise SpecError if others than the caller can change a file that a command is to read; those that ship with
        envbuild are trusted."""
        check_file(path, (SHIPPED, PACKAGE))

    def lock_path(self, spec: Path) -> Path:
        """Return the lock to read for `spec`; the file need not exist. Raises SpecError for one that others can
        change."""
        path = spec.with_suffix(".lock")
        if self._read_only(spec):
            own = [] if self.root is None else [self.root / "images" / path.name]
            path = next((other for other in [*own, data_folder() / "locks" / path.name] if other.is_file()), path)
        self.check_file(path)
        return path

    def new_lock_path(self, spec: Path) -> Path:
        """Return the path of a new lock for `spec`; its folder need not exist."""
        beside = spec.with_suffix(".lock")
        if not self._read_only(spec):
            return beside
        return (data_folder() / "locks" if self.root is None else self.root / "images") / beside.name

    def _read_only(self, spec: Path) -> bool:
        return INSTALLED and spec.resolve().is_relative_to(SHIPPED)

    def _folders(self, kind: str) -> Iterator[Path]:
        if self.root is not None:
            yield self.root / kind
        shipped = PACKAGE / kind if kind == "targets" else SHIPPED / kind
        if self.root is None or shipped != self.root / kind:
            yield shipped

    def _names(self, kind: str, suffix: str) -> tuple[str, ...]:
        found = {
            path.stem
            for folder in self._folders(kind)
            for path in list_folder(folder)
            if path.suffix == suffix and is_valid_name(path.stem) and path.is_file()
        }
        return tuple(sorted(found))

    def _find(self, kind: str, name: str) -> Path:
        file = f"{name.replace('-', '_')}.py" if kind == "recipes" else f"{name}.yaml"
        if is_valid_name(name) and not (kind == "recipes" and "_" in name):  # one recipe, one name
            for folder in self._folders(kind):
                if (path := folder / file).is_file():
                    return path
        known = {"images": self.images, "recipes": self.recipes, "targets": self.targets}[kind]()
        close, what = closest(name, known), kind.removesuffix("s")
        if not is_valid_name(name):
            rule = "use a-z, 0-9, '.', '_' and '-', and begin with a letter or digit"
            a = "an" if what[0] in "aeiou" else "a"
            raise SpecError(f"'{short(name)}' cannot be the name of {a} {what}", close or rule)
        add = f"to add one, write {kind}/{file} in a project" + (", with one Recipe class" if kind == "recipes" else "")
        there = did_you_mean(name, known, f"the {kind} are")
        raise SpecError(f"no {what} is called '{name}'", close or "; ".join(filter(None, (there, add))))


def is_valid_name(name: str) -> bool:
    """Return whether an image, recipe or target can be called `name`."""
    return re.fullmatch(NAME, name) is not None and ".." not in name


def looks_like_path(name: str) -> bool:
    """Return whether a NAME of the command line is a path: it ends in .yaml."""
    return name.endswith((".yaml", ".yml"))


def data_folder() -> Path:
    """Return the user's folder for files that envbuild writes and cannot write again without the user."""
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "share") / "envbuild"


def _report_left_out(folder: Path, error: SpecError, has_site: bool, reporter: Reporter) -> None:
    if folder in _left_out:
        return
    _left_out.add(folder)
    what = f"only {SITE} of the project {folder} is used" if has_site else f"the project {folder} is left out"
    reporter.warn(f"{what}: {error.where}: {error.message}; {error.findings[-1].hint}")
