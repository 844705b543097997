"""A repository of a server: one commit of it, fetched into a cache of the store.

Only one commit is requested from a server (``git fetch --depth=1 ADDRESS COMMIT``, which every server with protocol
version 2 answers: gitprotocol-v2(5)). If it provides only what its branches and tags name, the tag is requested, then
everything.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from urllib.parse import urlsplit

from envbuild.core.errors import FREE_SOME, EngineError
from envbuild.core.free_space import FULL_BELOW, PROBE, free_bytes, write_through
from envbuild.core.store.store import Store
from envbuild.lock.git.http_access import find_address
from envbuild.lock.git.received import (
    FULL,
    Received,
    accept,
    has_commit,
    make_incoming,
    make_repository,
    names_commit,
    reference,
    size_of,
)
from envbuild.lock.git.server_git import HTTP, git_error, list_references, run_server_git, without_credentials
from envbuild.lock.git.source_limits import MAX_REFS, describe_excess
from envbuild.net.failures import NotFoundError, RefusedError
from envbuild.net.transport import Transport
from envbuild.net.urls import redact

# Messages of servers and of git itself if a single commit cannot be requested; any other failure is reported as it is.
# (A server of protocol version 2 reports "not our ref" for objects that it does not have at all.)
ONLY_NAMED = re.compile(rb"unadvertised|does not allow request|want \w+ not valid|not support shallow|find remote ref")
TOO_LARGE = re.compile(rb"File too large")
# What git reports of a damaged repository.
OF_DAMAGE = re.compile(
    rb"(?i)inflate|corrupt|damaged|(bad|missing) (\w+ )?(object|shallow)|unable to (read|parse|unpack)|not read|"
    rb"index file|non-monotonic|too small"
)
OF_SERVER = (b"remote:", b"fatal: remote error:")  # from there on a server may have written the lines


@dataclass(frozen=True, slots=True, eq=False)
class RemoteRepository:
    """A repository of a server, under the first of `addresses` that is one. What was fetched is cached in the
    store's folder ``git``, one for each origin: a later commit or image, and a run without a network, use it."""

    transport: Transport
    store: Store
    origin: str
    addresses: tuple[str, ...]
    report_status: Callable[[str], None]
    received: Received = field(default_factory=Received)

    @property
    def place(self) -> str:
        return redact(self.addresses[-1])

    @property
    def name(self) -> str:
        """Return the name of the cache of this origin."""
        return hashlib.sha256(self.origin.encode()).hexdigest()[:32]

    @property
    def caches(self) -> tuple[Path, Path]:
        """Return the folders of the store that may have its commits: a shallow repository, and one with all."""
        return self.store.own / "git" / self.name, self.store.own / "git" / f"{self.name}-whole"

    def is_cached(self, commit: str) -> bool:
        """Return whether the store has a commit, so that no network is needed."""
        return any(has_commit(folder, commit) for folder in self.caches)

    def obtain(self, commit: str, tag: str, *, again: bool = False) -> Path:
        """Do as `LocalRepository.obtain`, over the network. Raises EngineError too, if the store is full.

        again: what the store has of it cannot be read, and is fetched again."""
        name = self.name
        for folder in () if again else self.caches:
            if has_commit(folder, commit):
                return folder
        with self.store.lock(f"git-{name}", lambda: self.report_status("waits for another process that fetches it")):
            shallow, whole = (self.store.own_folder("git") / folder.name for folder in self.caches)
            for folder in () if again else self.caches:  # what another process has fetched meanwhile
                if has_commit(folder, commit):
                    return folder
            address = self._find_address()
            for wanted in (commit, *([f"refs/tags/{tag}"] if tag else [])):
                self.report_status(f"fetching {wanted.removeprefix('refs/tags/')} from {self.place}")
                refs = f"+{wanted}:{reference(commit)}"
                failure = self._fetch(address, shallow, commit, "--depth=1", refs, again=again)
                if has_commit(shallow, commit) and not (again and failure):
                    return shallow
                if failure and not ONLY_NAMED.search(failure):
                    raise git_error(failure)
            # A separate folder: git does not complete the history of a shallow one.
            self.report_status(f"fetching the whole history from {self.place}, which does not provide single commits")
            every = [f"+{name}:refs/whole/{at}" for at, name in enumerate(self._list_refs(address))]
            if every:
                failure = self._fetch(address, whole, commit, "--stdin", content="\n".join(every), again=again)
                if failure:
                    raise git_error(failure)
            if has_commit(whole, commit):
                return whole
        raise NotFoundError("it does not have this commit")

    def resolve_tag(self, tag: str) -> str:
        """Do as `LocalRepository.resolve_tag`, over the network."""
        address = self._find_address()
        names = (f"refs/tags/{tag}", f"refs/tags/{tag}^{{}}")
        found = list_references(self.transport, address, *names)
        lines = [line.partition("\t") for line in found.decode(errors="replace").split("\n")]
        answers = {name: commit for commit, _, name in lines}
        return answers.get(names[1]) or answers.get(names[0], "")  # "^{}" is the commit that an annotated tag names

    def has_tags(self) -> bool:
        """Do as `LocalRepository.has_tags`, over the network."""
        address = self._find_address()
        return bool(list_references(self.transport, address, options=["--tags"]).strip())

    def _list_refs(self, address: str) -> list[str]:
        """Return the branches and tags of a server, each of which becomes a file of the store, under a number: a name
        is as many folders as it has parts. Raises RefusedError for too many, NotFoundError, UnreachableError."""
        kinds = ("--heads", "--tags", "--refs")  # not those that annotated tags name
        found = list_references(self.transport, address, options=kinds)
        names = [line.partition("\t")[2] for line in os.fsdecode(found).split("\n") if line]
        if len(names) > MAX_REFS:
            raise RefusedError(f"it provides no single commits, and has more than {MAX_REFS} branches and tags")
        return names

    def _find_address(self) -> str:
        """Return the address that is a repository. Raises NotFoundError, UnreachableError, RefusedError."""
        misses: list[NotFoundError | RefusedError] = []
        for address in self.addresses:
            try:
                return self._probe(address)
            except (NotFoundError, RefusedError) as error:
                misses.append(error)
        raise misses[-1]

    def _probe(self, address: str) -> str:
        """Send the first request of git itself, and return the address for all others. Raises NotFoundError,
        UnreachableError, RefusedError."""
        if urlsplit(address).scheme in HTTP:
            return find_address(self.transport, address)
        list_references(self.transport, address, "HEAD")
        return address

    def _fetch(
        self, address: str, cache: Path, commit: str, option: str, *refs: str, content: str = "", again: bool = False
    ) -> bytes:
        """Run git fetch; the cache gets what arrived if that has `commit`. Return git's error output if it failed, else
        nothing. Raises EngineError, UnreachableError.

        What the cache has is not requested, unless git cannot read it: then all is (`again`). Nothing is removed: the
        cache may have commits that their server has no more, and of two copies of an object git takes the sound one.
        """
        if not again:
            failure, unreadable = self._receive(address, cache, commit, option, *refs, content=content)
            if not unreadable:
                return failure
        failure, _ = self._receive(address, cache, commit, option, *refs, content=content, again=True)
        return failure

    def _receive(
        self, address: str, cache: Path, commit: str, option: str, *refs: str, content: str, again: bool = False
    ) -> tuple[bytes, bool]:
        """Do as `_fetch`, once. Return also whether the cache cannot be read."""
        most, this = self.transport.limits.file, object()
        excess, left = b"fatal: " + describe_excess(most).encode(), most - self.received.total
        if left <= 0:
            self.received.record(self, this, 1)
            return excess, False
        with self.store.workdir() as work, self.store.filled():
            folder = work / "incoming"
            make_repository(cache)
            if again:
                make_repository(folder)
            else:
                make_incoming(folder, cache)

            def is_excess() -> bool:
                return self.received.record(self, this, size_of(folder)) > most

            words = ("fetch", "--quiet", "--no-tags", option, "--", without_credentials(address), *refs)
            done = run_server_git(
                self.transport,
                address,
                folder,
                *words,
                content=os.fsencode(content),
                largest=left,
                ends=lambda _: is_excess(),
            )
            own = list(takewhile(lambda line: not line.startswith(OF_SERVER), done.stderr.splitlines()))
            if is_excess():
                return excess, False
            # Words of a server may be among git's own. git has removed what did not arrive: it had as much room before.
            full = next(filter(None, map(FULL.search, own)), None)
            room = free_bytes(work) - self.received.of(self, this)
            if full and room < FULL_BELOW and b"quota" not in full[0]:
                raise EngineError(f"the store {self.store.root} is full", hint=FREE_SOME)
            if done.returncode:
                (work / "probe/folder").mkdir(parents=True)
                write_through(work / "probe/folder/file", FULL_BELOW if full else PROBE)
            if any(map(TOO_LARGE.search, own)):
                self.received.record(self, this, left + 1)
                return excess, False
            if done.returncode:
                return done.stderr or b"fatal: git failed", any(map(OF_DAMAGE.search, own))
            if accept(folder, cache, commit):
                return b"", not has_commit(cache, commit)
            return b"", names_commit(cache, commit)
