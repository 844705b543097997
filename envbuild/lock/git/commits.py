"""Find the commits of a source in the places that have them; all that are not available are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from envbuild.core.errors import Finding, InputError
from envbuild.core.store.store import Store
from envbuild.core.text import printable
from envbuild.lock.git.git_program import SlowError
from envbuild.lock.git.received import Received
from envbuild.lock.git.remote import RemoteRepository
from envbuild.lock.git.repositories import GitRepository, find_repositories
from envbuild.lock.git.source_limits import check_entries, check_received
from envbuild.lock.git.tree import CommitTree, read_tree
from envbuild.lock.missing_inputs import describe_misses, not_available_error, source_finding
from envbuild.net.download import DownloadError
from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.miss import Miss
from envbuild.net.site import Site
from envbuild.net.transport import Transport

PARALLEL = 4


class SourceCommit(NamedTuple):
    """A commit of a source: the source's own (`path` is empty), or a submodule's."""

    path: str
    origin: str
    commit: str


@dataclass(frozen=True, slots=True)
class CommitFinder:
    """Finder of the commits of one source. `report_status` receives the current step as text. `again`: what the store
    has of them cannot be read, and is fetched again."""

    site: Site
    transport: Transport
    store: Store
    report_status: Callable[[str], None]
    received: Received = field(default_factory=Received)
    again: bool = False

    def find_source(self, part: SourceCommit, tag: str, file: str) -> tuple[CommitTree, list[GitRepository]]:
        """Return the commit of a source itself, and its places from the one that has it.

        Raises InputError if no place has it.
        """
        try:
            return self._find(part, tag)
        except DownloadError as error:
            raise not_available_error(f"{part.origin}@{part.commit}", file, "", error.misses) from None

    def find_all(
        self, parts: Sequence[SourceCommit], top: str, file: str, sha256: str = "", refused: Sequence[Miss] = ()
    ) -> dict[str, CommitTree]:
        """Return path → commit, of all `parts` of the source `top`, whose tarball is `file`.

        refused: other places that were tried for the source

        Raises InputError with every part that is not available, and for too many files or bytes of all parts.
        """
        most = self.transport.limits.file
        trees: list[CommitTree] = []

        def find_one(part: SourceCommit) -> CommitTree | Finding:
            check_entries(top, trees)
            check_received(top, self.received.total, most)
            try:
                submodule = bool(part.path) and part.origin != top.rpartition("@")[0]
                tree = self._find(part, "", submodule=submodule)[0]
            except DownloadError as error:
                if not part.path:
                    return not_available_error(top, file, sha256, [*refused, *error.misses]).findings[0]
                commit = f"{part.origin}@{part.commit}"
                tried = describe_misses(error.misses)
                message = f"the submodule {printable(part.path)} of {top} ({commit}) is not available; {tried}"
                return source_finding(message, commit, file)
            trees.append(tree)
            return tree

        once: dict[tuple[str, str], SourceCommit] = {}  # many submodules may be the same commit
        for part in parts:
            once.setdefault((part.origin, part.commit), part)
        with ThreadPoolExecutor(PARALLEL) as pool:
            results = dict(zip(once, pool.map(find_one, once.values()), strict=True))
        check_received(top, self.received.total, most)
        found = {part.path: results[part.origin, part.commit] for part in parts}
        findings = [item for item in results.values() if isinstance(item, Finding)]
        if findings:
            raise InputError.of(findings)
        return {path: tree for path, tree in found.items() if isinstance(tree, CommitTree)}

    def _find(self, part: SourceCommit, tag: str, *, submodule: bool = False) -> tuple[CommitTree, list[GitRepository]]:
        """Return the commit, and the places from the one that has it. `submodule`: a commit names its repository, and
        no recipe. Raises DownloadError, InputError."""
        misses: list[Miss] = []
        places = find_repositories(
            self.site, self.transport, self.store, part.origin, self.report_status, self.received, submodule=submodule
        )
        for number, place in enumerate(places):
            try:
                return self._read(place, part, tag), places[number:]
            except (NotFoundError, UnreachableError) as error:
                misses.append(error.miss(place.place))
                if number + 1 < len(places):
                    self.received.forget(place)
        raise DownloadError(misses)

    def _read(self, place: GitRepository, part: SourceCommit, tag: str) -> CommitTree:
        """Return the commit from a place. Raises NotFoundError, UnreachableError, RefusedError, InputError."""
        if not self.again:
            try:
                return read_tree(place.obtain(part.commit, tag), part.origin, part.commit)
            except (NotFoundError, UnreachableError) as error:
                remote = isinstance(place, RemoteRepository) and place.is_cached(part.commit)
                if isinstance(error, SlowError) or not remote:
                    raise
        more = {"again": True} if isinstance(place, RemoteRepository) else {}
        return read_tree(place.obtain(part.commit, tag, **more), part.origin, part.commit)


def submodule_path(path: str, link: bytes) -> str:
    """Return the path of a submodule, `link` of the commit at `path`, from the top of the source."""
    return f"{path}/{link.decode(errors='replace')}".lstrip("/")
