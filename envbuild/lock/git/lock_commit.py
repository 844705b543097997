"""Sources that are commits: the canonical tarball of each, locked by its digest and reproducible from the lock alone.

A tarball is written into the store from the first place that has the commit (`envbuild.lock.git.repositories`). A
mirror may have the finished tarball, as the folder of an air-gapped site does; it is used if its digest is the locked
one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from envbuild.core.console import Reporter
from envbuild.core.errors import EngineError, Finding, InputError, SpecError
from envbuild.core.store.store import Store
from envbuild.core.text import describe_hidden, first_hidden, human_list, printable
from envbuild.core.yaml_reader import short
from envbuild.lock.entry_grammar import COMMIT
from envbuild.lock.git.commit_hint import UNKNOWN, CommitHint
from envbuild.lock.git.commits import CommitFinder, SourceCommit, submodule_path
from envbuild.lock.git.git_program import SlowError
from envbuild.lock.git.left_out import left_out_findings
from envbuild.lock.git.received import Received
from envbuild.lock.git.repositories import GitRepository, tarball_places
from envbuild.lock.git.source_limits import check_entries, check_submodules
from envbuild.lock.git.submodules import submodule_origin
from envbuild.lock.git.tarball import Tarball, empty_folders, write_tar
from envbuild.lock.git.tree import REVIEW, CommitTree
from envbuild.lock.missing_inputs import InvalidInputError
from envbuild.lock.model import SourceFile
from envbuild.net.download import DownloadError, Transfer
from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.miss import Miss, MissKind
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.spec.recipe import Git

ALL = "*"  # among the requested submodules
NAMED = 6  # names in a message


def lock_commit(
    site: Site,
    transport: Transport,
    store: Store,
    reporter: Reporter,
    git: Git,
    known: Mapping[str, SourceFile],
    hint: CommitHint = UNKNOWN,
) -> SourceFile:
    """Return the commit as a locked tarball, which is then in the store.

    known: file name → an earlier lock's entry. One for the same commit with the same submodules is returned without
        any work: a commit's hash verifies its content, and its tarball is always the same
    hint: where the user changes the commit and its submodules

    Raises InputError (no place has the commit or a submodule, the tag names another commit), SpecError, EngineError
    (the store).
    """
    if not COMMIT.fullmatch(git.commit):
        raise SpecError(
            f"the source '{git.name}' ({git.origin}) names '{git.commit}', which is not a commit",
            hint="a commit has 40 hexadecimal digits:  git ls-remote ADDRESS TAG",
        )
    work = CommitJob(site, transport, store, reporter, f"git {git.file}", hint)
    origin = f"{git.origin}@{git.commit}"
    earlier = known.get(git.file)
    if earlier and earlier.git and earlier.origin == origin and work.has_requested_submodules(git, earlier):
        return earlier
    reporter.start(work.task, f"{git.origin} {git.tag or git.commit[:12]}")
    try:
        trees, written = work.make_tarball(git.file, lambda again: work.find_trees(git, again))
    finally:
        reporter.finish(work.task)
    if written.pointers:
        reporter.warn(
            f"{git.file}: {list_some(written.pointers)} are pointers to content in Git LFS, which is not downloaded; "
            "if the build needs it, add it to the recipe as an archive"
        )
    submodules = {path: f"{tree.origin}@{tree.commit}" for path, tree in sorted(trees.items()) if path}
    return SourceFile(git.file, origin, written.sha256, written.size, git=True, submodules=submodules)


def obtain_commit(site: Site, transport: Transport, store: Store, reporter: Reporter, source: SourceFile) -> None:
    """Put the tarball of a locked commit into the store: from a mirror that has it, else from the commits that the lock
    names. Raises InputError, EngineError (the store).
    """
    work = CommitJob(site, transport, store, reporter, f"git {source.file}")
    if store.has_blob(source.sha256, source.size):
        return
    refused = work.download_tarball(source)
    if store.has_blob(source.sha256, source.size):
        return
    reporter.start(work.task, source.origin)
    try:
        parts = [
            parse_source_commit("", source.origin),
            *(parse_source_commit(path, origin) for path, origin in sorted(source.submodules.items())),
        ]
        _, written = work.make_tarball(
            source.file,
            lambda again: work.commits(again).find_all(parts, source.origin, source.file, source.sha256, refused),
            wanted=source.sha256,
        )
    finally:
        reporter.finish(work.task)
    if written.sha256 != source.sha256:
        raise InputError(
            f"the tarball {source.file} of {source.origin} has sha256 {written.sha256}, but the lock has "
            f"{source.sha256}",
            hint="the lock was edited, or made by another version of envbuild; run: envbuild lock NAME --fresh",
        )


@dataclass(frozen=True, slots=True)
class CommitJob:
    """Work on one source; `task` is its name in progress lines, `hint` where the user changes its commit."""

    site: Site
    transport: Transport
    store: Store
    reporter: Reporter
    task: str
    hint: CommitHint = UNKNOWN
    received: Received = field(default_factory=Received)

    def commits(self, again: bool) -> CommitFinder:
        return CommitFinder(
            self.site,
            self.transport,
            self.store,
            lambda text: self.reporter.note(self.task, text),
            self.received,
            again,
        )

    def has_requested_submodules(self, git: Git, earlier: SourceFile) -> bool:
        """Return whether a locked entry has exactly the requested submodules."""
        have, requested = set(earlier.submodules), set(git.fetched_submodules)
        if ALL not in requested:
            return requested <= have and all(is_included(path, requested) for path in have)
        # A lock does not list the submodules that were left out; the tarball has an empty folder for each.
        if not self.store.has_blob(earlier.sha256):
            self.download_tarball(earlier)
        return self.store.has_blob(earlier.sha256) and not empty_folders(self.store.pin_blob(earlier.sha256))

    def download_tarball(self, source: SourceFile) -> list[Miss]:
        """Download the finished tarball from a mirror, if one has it. Return mirrors with another file."""
        places = tarball_places(self.site, parse_source_commit("", source.origin).origin, source.file)
        try:
            Transfer(self.transport, self.store).obtain(places, source.sha256, source.size or None)
        except DownloadError as error:
            return [miss for miss in error.misses if miss.kind is MissKind.MISMATCH]
        return []

    def find_trees(self, git: Git, again: bool) -> dict[str, CommitTree]:
        """Return path → commit, of the commit itself (an empty path) and its requested submodules.

        Raises InputError.
        """
        origin, requested = f"{git.origin}@{git.commit}", set(git.fetched_submodules)
        commits = self.commits(again)
        tree, places = commits.find_source(SourceCommit("", git.origin, git.commit), git.tag, git.file)
        if git.tag:
            self.check_tag(git, places)
        found = level = {"": tree}
        for depth in itertools.count(1):
            parts = [
                item for path, tree in level.items() for item in self.select_submodules(path, tree, requested, origin)
            ]
            if not parts:
                break
            check_submodules(origin, len(found) - 1 + len(parts), depth)
            level = commits.find_all(parts, origin, git.file)
            found = found | level
            check_entries(origin, found.values())
        if missing := sorted(requested - set(found) - {ALL}):
            there = sorted(submodule_path(path, link) for path, tree in found.items() for link in tree.gitlinks)
            hint = f"its submodules: {list_some(there)}" if there else "it has none"
            raise InvalidInputError.of(Finding(f"{origin} has no submodule {path}", "", hint) for path in missing)
        if findings := left_out_findings(git, found, self.hint.recipe):
            raise InvalidInputError.of(findings)
        return found

    def select_submodules(self, path: str, tree: CommitTree, requested: set[str], top: str) -> list[SourceCommit]:
        """Return the requested submodules of the commit at `path` of the source `top`. Raises InputError."""
        parts, findings = [], []
        for link, commit in sorted(tree.gitlinks.items()):
            full = submodule_path(path, link)
            if not is_included(full, requested):
                continue
            if sign := first_hidden(full):  # a lock refuses it; an empty folder instead would hide it
                what = f"the submodule {printable(full)} of {top} has a name with the {describe_hidden(sign)}"
                findings.append(Finding(what, "", REVIEW))
                continue
            try:
                link.decode()  # a lock contains text; what fails here is a ValueError too
                if link not in tree.submodule_urls:
                    raise ValueError("it is not listed in .gitmodules")
                parts.append(SourceCommit(full, submodule_origin(tree.submodule_urls[link], tree.origin), commit))
            except ValueError as error:
                what = f"the repository of the submodule {full} of {top} is not known: {error}"
                if full in requested:
                    findings.append(Finding(what, "", "remove it from the recipe's submodules"))
                else:
                    self.reporter.warn(f"{what}; it is left out")
        if findings:
            raise InputError.of(findings)
        return parts

    def check_tag(self, git: Git, places: Iterable[GitRepository]) -> None:
        """Compare what the tag names at the first of `places` that answers. Raises InputError when it is another
        commit.

        The commit is what is locked. A mirror without any tags (a shallow one) has no information about them. If it has
        tags but not this one, upstream may have deleted it: that is a warning.
        """
        misses = []
        for place in places:
            try:
                found = place.resolve_tag(git.tag)
                gone = not found and place.has_tags()
            except (NotFoundError, UnreachableError) as error:
                misses.append(error.miss(place.place))
                continue
            if found not in ("", git.commit):
                raise InvalidInputError(
                    f"the source '{git.name}' ({git.origin}) cannot be locked, because the tag {git.tag} names commit "
                    f"{found} at {place.place}, and the recipe has {git.commit}",
                    hint=f"the tag was moved upstream: review what changed, then change {self.hint.change}",
                )
            if gone:
                self.reporter.warn(
                    f"{git.origin} has no tag {git.tag} at {place.place}, but it has others: upstream may have deleted "
                    f"the tag; {git.commit[:12]} is locked: verify it before you rely on it"
                )
            return
        why = f" ({misses[0]})" if misses else ""
        self.reporter.warn(f"{git.origin}: cannot verify that {git.tag} still is {git.commit[:12]}{why}")

    def make_tarball(
        self, file: str, find: Callable[[bool], dict[str, CommitTree]], *, wanted: str = "", again: bool = False
    ) -> tuple[dict[str, CommitTree], Tarball]:
        """Return what `find` finds (path → commit), and write its tarball into the store. `wanted`: one with another
        sha256 does not become a file of the store, which others can read. Where the store's copy of a commit cannot be
        read, all are fetched again, once (`again`). Raises InputError, EngineError."""
        trees = find(again)
        try:
            return trees, self.write_tarball(file, trees, wanted)
        except (NotFoundError, UnreachableError) as error:
            cached = any(tree.folder.parent == self.store.own / "git" for tree in trees.values())
            if again or not cached or isinstance(error, SlowError):
                raise InputError(f"the source {file} cannot be written: {error}", "repair that repository") from None
            self.reporter.warn(f"{file}: a commit in the store cannot be read, and is fetched again: {error}")
        return self.make_tarball(file, find, wanted=wanted, again=True)

    def write_tarball(self, file: str, trees: Mapping[str, CommitTree], wanted: str) -> Tarball:
        """Write the tarball into the store, unless another one is `wanted`. Raises NotFoundError, UnreachableError,
        InputError, EngineError."""
        try:
            with self.store.filled(), self.store.workdir() as folder:
                path = folder / "tarball"
                with path.open("wb") as output:
                    written = write_tar(file.removesuffix(".tar"), trees, output)
                if wanted in ("", written.sha256):
                    path.chmod(0o644)
                    path.replace(self.store.blob(written.sha256))
                return written
        except OSError as error:
            raise EngineError(
                f"the store {self.store.root} cannot be written: {error}",
                hint="set ENVBUILD_STORE to a folder that you may write",
            ) from None


def is_included(path: str, requested: set[str]) -> bool:
    """Return whether a submodule is requested: it is named itself, or contains one that is."""
    return ALL in requested or path in requested or any(item.startswith(f"{path}/") for item in requested)


def parse_source_commit(path: str, origin: str) -> SourceCommit:
    """Return an entry of a lock (``github:openucx/ucx@COMMIT``) as a commit. Raises InputError for another text: git
    would take ``--output=FILE`` for an option."""
    repository, _, commit = origin.rpartition("@")
    if not COMMIT.fullmatch(commit):
        raise InputError(f"{short(origin)!r} names no commit", "make the lock again: envbuild lock NAME --fresh")
    return SourceCommit(path, repository, commit)


def list_some(names: Iterable[str]) -> str:
    """Return the first of many names as text."""
    return human_list((printable(name) for name in names), NAMED)
