"""Sources that are commits: the canonical tarball of each, locked by its digest, and made again from the lock alone.

A tarball is made in the store from the first place that has the commit (`envbuild.lock.git.repositories`). A mirror may
hold the finished tarball, as the folder of an air-gapped site does; it is taken when its digest is the locked one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from envbuild.core.console import Reporter
from envbuild.core.errors import EngineError, Finding, InputError, SpecError
from envbuild.core.store.store import Store
from envbuild.core.text import human_list
from envbuild.lock.git.commits import CommitFinder, SourceCommit, submodule_path
from envbuild.lock.git.repositories import GitRepository, tarball_places
from envbuild.lock.git.submodules import submodule_origin
from envbuild.lock.git.tarball import Tarball, empty_folders, write_tar
from envbuild.lock.git.tree import CommitTree
from envbuild.lock.lockfile import SourceFile
from envbuild.lock.missing_inputs import COMMIT, InvalidInputError
from envbuild.net.download import DownloadError, Transfer
from envbuild.net.miss import Miss, MissKind
from envbuild.net.site import Site
from envbuild.net.transport import NotFoundError, Transport, UnreachableError
from envbuild.spec.recipe import Git

ALL = "*"  # among the submodules that are wanted
NAMED = 6  # names in a message


def lock_commit(
    site: Site,
    transport: Transport,
    store: Store,
    reporter: Reporter,
    git: Git,
    known: Mapping[str, SourceFile],
    pin: str = "",
) -> SourceFile:
    """The commit as a locked tarball, which is then in the store.

    An entry of `known` (file name → an earlier lock's entry) for the same commit with the same submodules is given back
    without any work: a commit's hash verifies its content, and its tarball is always the same. `pin`: where the commit
    is written down, for a tag that was moved. Raises InputError (no place has the commit or a submodule, the tag names
    another commit), SpecError, EngineError (the store).
    """
    if not COMMIT.fullmatch(git.commit):
        raise SpecError(
            f"the source '{git.name}' ({git.origin}) names '{git.commit}', which is not a commit",
            hint="a commit has 40 hexadecimal digits:  git ls-remote ADDRESS TAG",
        )
    work = CommitJob(site, transport, store, reporter, f"git {git.file}", pin or "the commit in the recipe")
    origin = f"{git.origin}@{git.commit}"
    earlier = known.get(git.file)
    if earlier and earlier.git and earlier.origin == origin and work.agrees(git, earlier):
        return earlier
    reporter.start(work.task, f"{git.origin} {git.tag or git.commit[:12]}")
    try:
        trees = work.wanted(git)
        made = work.tarball(git.file, trees)
    finally:
        reporter.finish(work.task)
    if made.pointers:
        reporter.warn(
            f"{git.file}: {list_some(made.pointers)} are pointers to content in Git LFS, which is not downloaded; "
            "if the build needs it, add it to the recipe as an archive"
        )
    submodules = {path: f"{tree.origin}@{tree.commit}" for path, tree in sorted(trees.items()) if path}
    return SourceFile(git.file, origin, made.sha256, made.size, git=True, submodules=submodules)


def obtain_commit(site: Site, transport: Transport, store: Store, reporter: Reporter, source: SourceFile) -> None:
    """Bring the tarball of a locked commit into the store: from a mirror that has it, else made again from the commits
    that the lock names. Raises InputError, EngineError (the store).
    """
    work = CommitJob(site, transport, store, reporter, f"git {source.file}")
    if store.has_blob(source.sha256):
        return
    refused = work.ready(source)
    if store.has_blob(source.sha256):
        return
    reporter.start(work.task, source.origin)
    try:
        parts = [
            parse_source_commit("", source.origin),
            *(parse_source_commit(path, origin) for path, origin in sorted(source.submodules.items())),
        ]
        trees = work.commits.trees(parts, source.origin, source.file, source.sha256, refused)
        made = work.tarball(source.file, trees)
    finally:
        reporter.finish(work.task)
    if made.sha256 != source.sha256:
        raise InputError(
            f"the tarball {source.file} of {source.origin} has sha256 {made.sha256}, but the lock says {source.sha256}",
            hint="the lock was edited, or made by another version of envbuild: lock again",
        )


@dataclass(frozen=True, slots=True)
class CommitJob:
    """Work on one source; `task` is its name in the talk, `pin` where its commit is written down."""

    site: Site
    transport: Transport
    store: Store
    reporter: Reporter
    task: str
    pin: str = ""

    @property
    def commits(self) -> CommitFinder:
        return CommitFinder(self.site, self.transport, self.store, lambda text: self.reporter.note(self.task, text))

    def agrees(self, git: Git, earlier: SourceFile) -> bool:
        """Whether a locked entry holds just the submodules that are wanted."""
        have, wish = set(earlier.submodules), set(git.submodules)
        if ALL not in wish:
            return wish <= have and all(is_included(path, wish) for path in have)
        # A lock does not tell whether there are others; the tarball does, when it is at hand.
        if not self.store.has_blob(earlier.sha256):
            self.ready(earlier)
        return self.store.has_blob(earlier.sha256) and not empty_folders(self.store.blob(earlier.sha256))

    def ready(self, source: SourceFile) -> list[Miss]:
        """Take the finished tarball from a mirror, if one has it. Returns those that have another one, with why."""
        places = tarball_places(self.site, parse_source_commit("", source.origin).origin, source.file)
        try:
            Transfer(self.transport, self.store).obtain(places, source.sha256)
        except DownloadError as error:
            return [miss for miss in error.misses if miss.kind is MissKind.MISMATCH]
        return []

    def wanted(self, git: Git) -> dict[str, CommitTree]:
        """Path → commit, of the commit itself (an empty path) and the submodules that are wanted of it. Raises
        InputError.
        """
        origin, wish = f"{git.origin}@{git.commit}", set(git.submodules)
        tree, places = self.commits.top(SourceCommit("", git.origin, git.commit), git.tag, git.file)
        if git.tag:
            self.check_tag(git, places)
        found = level = {"": tree}
        while level:
            parts = [item for path, tree in level.items() for item in self.submodules(path, tree, wish, origin)]
            level = self.commits.trees(parts, origin, git.file)
            found = found | level
        if lacking := sorted(wish - set(found) - {ALL}):
            there = sorted(submodule_path(path, link) for path, tree in found.items() for link in tree.links)
            hint = f"its submodules: {list_some(there)}" if there else "it has none"
            raise InvalidInputError.of(Finding(f"{origin} has no submodule {path}", "", hint) for path in lacking)
        return found

    def submodules(self, path: str, tree: CommitTree, wish: set[str], top: str) -> list[SourceCommit]:
        """The wanted submodules of the commit at `path` of the source `top`. Raises InputError."""
        parts, findings = [], []
        for link, commit in sorted(tree.links.items()):
            full = submodule_path(path, link)
            if not is_included(full, wish):
                continue
            try:
                link.decode()  # a lock holds text; what fails here is a ValueError too
                if link not in tree.modules:
                    raise ValueError("its .gitmodules does not name it")
                parts.append(SourceCommit(full, submodule_origin(tree.modules[link], tree.origin), commit))
            except ValueError as error:
                what = f"where the submodule {full} of {top} comes from is not known: {error}"
                if full in wish:
                    findings.append(Finding(what, "", "leave it out of the recipe's submodules"))
                else:
                    self.reporter.warn(f"{what}; it is left out")
        if findings:
            raise InputError.of(findings)
        return parts

    def check_tag(self, git: Git, places: Iterable[GitRepository]) -> None:
        """Compare what the tag names at the first of `places` that answers. Raises InputError when it is another
        commit.

        The commit is what is locked. A mirror without any tags (a shallow one) says nothing of them; where there are
        tags but not this one, somebody may have taken it back, which a person is told.
        """
        misses = []
        for place in places:
            try:
                found = place.tagged(git.tag)
                gone = not found and place.has_tags()
            except (NotFoundError, UnreachableError) as error:
                misses.append(error.miss(place.place))
                continue
            if found not in ("", git.commit):
                raise InvalidInputError(
                    f"the source '{git.name}' ({git.origin}) cannot be locked, because the tag {git.tag} names commit "
                    f"{found} at {place.place}, and the recipe says {git.commit}",
                    hint=f"the tag was moved upstream: look at what changed, then change {self.pin}",
                )
            if gone:
                self.reporter.warn(
                    f"{git.origin} has no tag {git.tag} at {place.place}, though it has others; {git.commit[:12]} is "
                    "locked, and whether upstream took the tag back is for you to see"
                )
            return
        why = f" ({misses[0]})" if misses else ""
        self.reporter.warn(f"{git.origin}: nobody could say whether {git.tag} still is {git.commit[:12]}{why}")

    def tarball(self, file: str, trees: Mapping[str, CommitTree]) -> Tarball:
        """Write the tarball into the store. Raises InputError, EngineError."""
        try:
            with self.store.filled(), self.store.workdir() as folder:
                path = folder / "tarball"
                with path.open("wb") as output:
                    made = write_tar(file.removesuffix(".tar"), trees, output)
                path.chmod(0o644)
                path.replace(self.store.blob(made.sha256))
                return made
        except (NotFoundError, UnreachableError) as error:
            raise InputError(f"the source {file} cannot be written: {error}", "repair that repository") from None
        except OSError as error:
            raise EngineError(
                f"the store {self.store.root} cannot be written: {error}",
                hint="set ENVBUILD_STORE to a folder that you may write",
            ) from None


def is_included(path: str, wish: set[str]) -> bool:
    """Whether a submodule is wanted: named itself, or the way to one that is."""
    return ALL in wish or path in wish or any(item.startswith(f"{path}/") for item in wish)


def parse_source_commit(path: str, origin: str) -> SourceCommit:
    """An entry of a lock: ``github:openucx/ucx@COMMIT``."""
    repository, _, commit = origin.rpartition("@")
    return SourceCommit(path, repository, commit)


def list_some(names: Iterable[str]) -> str:
    """The first of many names."""
    return human_list(names, NAMED)
