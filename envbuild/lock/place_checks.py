"""Checks of the places of inputs before the first download: one request for each origin.

An origin is refused if none of its places answers, or each requires a login. A place that answers without the file is
not refused: the file may be in the next place, or in a snapshot service, and the download finds out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from envbuild.core.console import Reporter
from envbuild.core.errors import Finding, InputError
from envbuild.core.store.store import Store
from envbuild.core.text import counted
from envbuild.lock.fetch import split_by_supplier
from envbuild.lock.git.remote import RemoteRepository
from envbuild.lock.git.repositories import MissingRepository, find_repositories, tarball_places
from envbuild.lock.input_fetcher import InputFetcher
from envbuild.lock.inputs import ImageBlob, Input, input_origin
from envbuild.lock.model import SourceFile
from envbuild.net.download import Transfer
from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.miss import Miss, MissKind
from envbuild.net.python_index import PackageIndex
from envbuild.net.registry.client import Repository
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.net.urls import local_path, redact

CLOSED = (MissKind.UNAUTHORIZED, MissKind.UNREACHABLE)  # another file of the origin would have the same answer
PARALLEL = 8


@dataclass(frozen=True, slots=True)
class PlaceChecks:
    """The checks for one image. `manifest`: digest of the manifest of its base image."""

    image: str
    site: Site
    store: Store
    reporter: Reporter
    where: Mapping[str, str]
    manifest: str = ""

    def findings(self, wanted: Sequence[Input]) -> list[Finding]:
        """Return a finding for each origin of `wanted` whose places are all closed."""
        origins: dict[str, list[Input]] = {}
        for entry in wanted:
            origins.setdefault(input_origin(entry), []).append(entry)
        transport = Transport(self.site.network(), tries=1)
        transfer = Transfer(transport, self.store)
        index = PackageIndex(transport, self.site.python())
        fetcher = InputFetcher(self.image, self.site, transfer, index, self.reporter, self.where)

        def check(entries: list[Input]) -> list[Finding]:
            largest = max(entries, key=lambda entry: entry.size)
            found = self.check_input(largest, fetcher)
            if len(entries) == 1:
                return found
            more = f"\nand {counted(len(entries) - 1, 'other file')} of {input_origin(largest)}"
            return [replace(finding, message=f"{finding.message}{more}") for finding in found]

        self.reporter.start("places", f"checking the places of {counted(len(origins), 'origin')}")
        try:
            with ThreadPoolExecutor(PARALLEL) as pool:
                return [finding for found in pool.map(check, origins.values()) for finding in found]
        finally:
            self.reporter.finish("places")

    def check_input(self, entry: Input, fetcher: InputFetcher) -> list[Finding]:
        """Return the finding for an input if all of its places are closed."""
        transport = fetcher.transfer.transport
        try:
            if isinstance(entry, ImageBlob):
                repository = Repository(parse_reference(entry.reference), self.site, transport)
                if self.manifest:
                    repository.manifest(f"sha256:{self.manifest}")
                return []
            if isinstance(entry, SourceFile) and entry.git:
                misses = self.check_repositories(entry, transport)
            else:
                misses = closed_places(fetcher.candidates(entry), transport)
        except InputError as error:
            return [fetcher.add_input(entry, finding) for finding in error.findings]
        return [fetcher.describe_failure(entry, misses)] if misses else []

    def check_repositories(self, source: SourceFile, transport: Transport) -> list[Miss]:
        """Return the misses of a commit if all of its places are closed; else nothing."""
        origin, _, commit = source.origin.rpartition("@")
        found = find_repositories(self.site, transport, self.store, origin, lambda text: None)
        missing = [place for place in found if isinstance(place, MissingRepository)]
        misses = [Miss(place.place, MissKind.ABSENT, place.why) for place in missing]
        remote = [place for place in found if isinstance(place, RemoteRepository)]
        tarballs = tarball_places(self.site, source.origin, source.file)
        if len(misses) + len(remote) < len(found) or any(place.is_cached(commit) for place in remote):
            return []
        if any(transport.size(place) for place in tarballs):
            return []
        closed = closed_places([place.addresses[0] for place in remote], transport)
        return [*misses, *closed] if closed or not remote else []


def closed_places(places: Sequence[str], transport: Transport) -> list[Miss]:
    """Return the misses of `places` if all are closed; else nothing."""
    misses: list[Miss] = []
    for place in places:
        if local_path(place) is not None:
            return []
        if not place.startswith(("http://", "https://")):  # ssh: only git itself can ask
            return []
        try:
            with transport.get(place, method="HEAD"):
                return []
        except (NotFoundError, UnreachableError) as error:
            if error.kind not in CLOSED:
                return []
            misses.append(error.miss(redact(place)))
    return misses


def check_places(
    image: str,
    wanted: Sequence[Input],
    store: Store,
    site: Site,
    reporter: Reporter,
    where: Mapping[str, str],
    manifest: str = "",
) -> None:
    """Check that each input of `wanted` has a place here that answers. Raises InputError with a finding for each origin
    that has none.

    where: file name of a source → the place in the spec that requires it
    manifest: digest of the manifest of the base image
    """
    known, findings = split_by_supplier(wanted, site, where)
    findings += PlaceChecks(image, site, store, reporter, where, manifest).findings(known)
    if findings:
        raise InputError.of(findings)
