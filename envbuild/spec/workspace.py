"""Workspace: the project, site, store and reporter of a command, opened once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envbuild.core import console
from envbuild.core.console import Reporter
from envbuild.core.errors import SpecError
from envbuild.core.regular_file import MAX_TEXT, mode_at, read_bounded
from envbuild.core.shell import shell_word
from envbuild.core.store.store import Store
from envbuild.core.store.store_folders import check_former_group
from envbuild.core.store.use import in_use
from envbuild.core.user_folders import config_folder
from envbuild.core.yaml_reader import short
from envbuild.net import site as sites
from envbuild.net.network_settings import UncheckedHosts
from envbuild.net.site import Site
from envbuild.spec.project import Project, looks_like_path
from envbuild.spec.trust import check_file


@dataclass(frozen=True, slots=True)
class Workspace:
    """The project, site, store and reporter that a command works with."""

    project: Project
    site: Site
    store: Store
    reporter: Reporter

    def with_reporter(self, reporter: Reporter) -> Workspace:
        """Return the workspace with another reporter, which gets the hosts whose certificate is not checked, too."""
        return replace(self, reporter=reporter, site=replace(self.site, unchecked=UncheckedHosts(report=reporter.warn)))


def load_site(project: Path | None = None) -> Site:
    """Return the site of `project` (a folder, `Project.site_folder`), of the user, or of the host. Raises SpecError
    with every mistake of a ``site.yaml``, or if others can change the one of the user.
    """
    for folder in (project, config_folder()):
        # Also a link to nothing, or into a closed folder: what it leads to may have a policy.
        if folder is not None and ((folder / "site.yaml").is_symlink() or (folder / "site.yaml").is_file()):
            from envbuild.net.site_file import read_site

            if folder != project:
                check_file(folder / "site.yaml")
            site = read_site(folder / "site.yaml")
            return with_user_policy(site) if folder == project else site
    return Site(store=sites.store_folder(None))


def with_user_policy(site: Site) -> Site:
    """Return the site of a project with the policy of signatures of the user's own site file, if that has one: a
    project cannot loosen it. Raises SpecError as `load_site`, and if that file cannot be read."""
    file = sites.user_file()
    if file is None:
        return site
    try:
        if not _may_have_policy(read_bounded(file, MAX_TEXT)):
            return site
    except OSError:
        if not mode_at(file) and not file.is_symlink():
            return site
    from envbuild.net.site_file import read_site

    check_file(file)  # one that cannot be read may have a policy: it is an error below
    own = read_site(file).signatures
    return replace(site, signatures=own) if own else site


def _may_have_policy(content: bytes) -> bool:
    """Return whether a site file must be read for its policy: not if it is text without that word. YAML can write each
    letter as an escape, and what is not UTF-8 (UTF-16 has NUL bytes) is an error of the reader."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return True
    return any(part in text for part in ("signatures", "\\", "\0"))


def store_folder(folder: Path | None = None) -> Path:
    """Return the store of `folder`, for commands that only read it: it may be missing, or not writable. Raises
    SpecError for a wrong site file."""
    return load_site(Project.find(folder).site_folder).store


@contextlib.contextmanager
def open_workspace(
    reporter: Reporter | None = None,
    folder: Path | None = None,
    *,
    names: Sequence[str] = (),
    alone: bool = False,
    clean: bool = True,
) -> Iterator[Workspace]:
    """Yield the workspace of `folder` (default: the current one) for a command that writes in the store, which is in
    use until the context ends (`envbuild.core.store.use.in_use`). `names`: images of the command line; where all are
    paths, the project that contains them (`Project.containing`).

    Raises SpecError for a wrong site file, EngineError for a store that cannot be written, or with `alone` if other
    commands use it.
    """
    project = _find_project(folder, names, reporter)
    with _opened(project, load_site(project.site_folder), reporter, alone=alone, clean=clean) as workspace:
        yield workspace


@contextlib.contextmanager
def open_site(file: Path | None, reporter: Reporter | None = None) -> Iterator[Workspace]:
    """Yield a workspace without a project, with the site `file`; None: the user's, or the host's. As `open_workspace`,
    and SpecError if others can change the file."""
    with _opened(Project(), read_site_file(file), reporter) as workspace:
        yield workspace


def read_site_file(file: Path | None) -> Site:
    """Return the site of a file; None: the user's, or the host's. Raises SpecError, also if others can change it."""
    if file is None:
        return load_site()
    from envbuild.net.site_file import read_site

    check_file(file)
    return read_site(file)


@contextlib.contextmanager
def _opened(
    project: Project, site: Site, reporter: Reporter | None, *, alone: bool = False, clean: bool = True
) -> Iterator[Workspace]:
    reporter = reporter or console.default_reporter()
    store = Store.open(site.store, reporter.info, may_be_full=alone)
    with in_use(store, reporter, alone=alone, clean=clean):
        yield Workspace(with_drivers(project, site), site, store, reporter).with_reporter(reporter)


def read_workspace(
    reporter: Reporter | None = None, folder: Path | None = None, *, names: Sequence[str] = ()
) -> Workspace:
    """Return the workspace of `folder` for a command that only reads the store: it may be missing, or not writable.
    `names`: as of `open_workspace`. Raises SpecError for a wrong site file."""
    reporter = reporter or console.default_reporter()
    project = _find_project(folder, names, reporter)
    site = load_site(project.site_folder)
    check_former_group(site.store)
    return Workspace(with_drivers(project, site), site, Store(site.store), reporter).with_reporter(reporter)


def _find_project(folder: Path | None, names: Sequence[str], reporter: Reporter | None) -> Project:
    owners = {path: Project.containing(path, reporter) for path in names if looks_like_path(path)}
    first = next(filter(None, owners.values()), None) if len(owners) == len(set(names)) else None
    project = first or Project.find(folder, reporter)
    for path, own in owners.items():
        if own and own.root and own.root != project.root:
            others = f"the project {project.root}" if project.root else "no project"
            raise SpecError(
                f"the spec is in the project {own.root}, and other images of this command are in {others}",
                f"type it alone: {shell_word(path)}",
                short(path),
            )
    return project


def with_site_drivers(project: Project) -> Project:
    """Return the project with the drivers of its site, for commands that do not open a workspace. Raises SpecError for
    a wrong site file."""
    return with_drivers(project, load_site(project.site_folder))


def with_drivers(project: Project, site: Site) -> Project:
    """Return the project with the drivers that the site states: they replace the floors of targets."""
    drivers = {"*": site.nodes.driver, **{name: nodes.driver for name, nodes in site.targets.items()}}
    stated = tuple((name, driver) for name, driver in drivers.items() if driver)
    return replace(project, drivers=stated) if stated else project
