"""Python projects in repositories: a tag of the spec as a commit, locked as other commits are.

The lock keeps the commit that a tag named. A tag that names another one later is refused until the user accepts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from envbuild.core.console import Reporter
from envbuild.core.store.store import Store
from envbuild.lock.git.commit_hint import UNKNOWN, CommitHint
from envbuild.lock.git.lock_commit import lock_commit, obtain_commit
from envbuild.lock.git.repositories import find_repositories
from envbuild.lock.missing_inputs import InvalidInputError, not_available_error
from envbuild.lock.model import SourceFile
from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.miss import Miss, MissKind
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.spec.recipe import Git, GitProject


class TagAnswer(NamedTuple):
    """The commit that a tag names, or ""; whether a repository answered; the answers of the places without it."""

    commit: str
    found_repository: bool
    misses: list[Miss]


@dataclass(frozen=True, slots=True)
class ProjectCommit(Git):
    """The commit of a project; its tarball is named after what the spec states."""

    tarball: str = ""

    @property
    def file(self) -> str:
        return self.tarball


def lock_project(
    site: Site,
    transport: Transport,
    store: Store,
    reporter: Reporter,
    project: GitProject,
    known: Mapping[str, SourceFile],
    hint: CommitHint = UNKNOWN,
) -> SourceFile:
    """Return the project as a locked tarball, with its submodules; it is then in the store.

    known: file name → an earlier lock's entry, whose commit a tag must still name

    Raises InputError, EngineError (the store).
    """
    commit = project.commit
    if not commit:
        answer = resolve_tag(site, transport, store, reporter, project)
        commit = check_tag(project, known.get(project.file), answer, reporter)
    git = ProjectCommit(project.name, project.origin, commit, tarball=project.file)
    locked = lock_commit(site, transport, store, reporter, git, known, hint)
    obtain_commit(site, transport, store, reporter, locked)  # its metadata is read from it
    return locked


def resolve_tag(site: Site, transport: Transport, store: Store, reporter: Reporter, project: GitProject) -> TagAnswer:
    """Return the commit that the tag names at the first place that has it."""
    task = f"git {project.file}"
    misses: list[Miss] = []
    answered = False
    reporter.start(task, f"{project.origin} {project.tag}")
    try:
        for place in find_repositories(site, transport, store, project.origin, lambda text: reporter.note(task, text)):
            try:
                if commit := place.resolve_tag(project.tag):
                    return TagAnswer(commit, True, misses)
                answered = True
                misses.append(Miss(place.place, MissKind.ABSENT, f"has no tag {project.tag}"))
            except (NotFoundError, UnreachableError) as error:
                misses.append(error.miss(place.place))
    finally:
        reporter.finish(task)
    return TagAnswer("", answered, misses)


def check_tag(project: GitProject, earlier: SourceFile | None, answer: TagAnswer, reporter: Reporter) -> str:
    """Return the commit to lock. Raises InputError for a tag that does not exist, and for one that was moved.

    earlier: the entry of the earlier lock
    """
    named, misses = answer.commit, answer.misses
    repository, _, locked = earlier.origin.rpartition("@") if earlier and earlier.git else ("", "", "")
    locked = locked if repository == project.origin else ""
    if locked and named not in ("", locked):
        raise InvalidInputError(
            f"'{project.name}' cannot be locked, because the tag {project.tag} of {project.origin} names commit "
            f"{named}, and the lock has {locked}",
            hint=f"the tag was moved upstream: review what changed, then: envbuild lock NAME --upgrade {project.name}",
        )
    if named or locked:
        if not named:
            why = f" ({misses[0]})" if misses else ""
            reporter.warn(f"{project.origin}: cannot verify that {project.tag} still is {locked[:12]}{why}")
        return named or locked
    if answer.found_repository:
        raise InvalidInputError(
            f"{project.origin} has no tag {project.tag}, which the requirement of '{project.name}' names",
            hint="a branch moves: write a tag, or all 40 digits of a commit:  git ls-remote ADDRESS",
        )
    raise not_available_error(f"{project.origin}@{project.tag}", project.file, "", misses)
