"""The download of one input of a lock: where each kind may be, and the finding for one that no place provides."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envbuild.core.console import Reporter
from envbuild.core.errors import Finding, InputError
from envbuild.lock.inputs import ImageBlob, Input, describe_input, input_origin, not_found_finding
from envbuild.lock.missing_inputs import not_available_error
from envbuild.lock.model import DebianFile, PythonFile, SourceFile
from envbuild.net.miss import Miss, MissKind
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site import Site

if TYPE_CHECKING:
    from envbuild.net.download import Transfer
    from envbuild.net.python_index import PackageIndex


@dataclass(frozen=True, slots=True)
class InputFetcher:
    """Downloader of the single inputs of `image`. `index` is the package index; those of vendors are opened on demand.
    `where`: file name of a source → the place in the spec that requires it. `dates`: of archives, for files that left
    them."""

    image: str
    site: Site
    transfer: Transfer
    index: PackageIndex
    reporter: Reporter
    where: Mapping[str, str]
    dates: Mapping[str, str] = field(default_factory=dict)
    vendors: dict[str, PackageIndex] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)
    one_connection: threading.Lock = field(default_factory=threading.Lock)  # to snapshot services

    def fetch_one(self, entry: Input) -> list[Finding]:
        """Fetch one input. Return the findings if that failed."""
        from envbuild.net.download import DownloadError

        try:
            if isinstance(entry, ImageBlob):
                self.fetch_image_blob(entry)
            elif isinstance(entry, SourceFile) and entry.git:
                self.fetch_commit(entry)
            else:
                self.fetch_file(entry)
        except DownloadError as error:
            return [self.describe_failure(entry, error.misses)]
        except InputError as error:
            return [self.add_input(entry, finding) for finding in error.findings]
        return []

    def fetch_file(self, entry: DebianFile | PythonFile | SourceFile) -> None:
        """Fetch a file; one that left a distribution's archive from its snapshot service. Raises DownloadError."""
        from envbuild.lock.snapshots import PATIENCE, snapshot_places
        from envbuild.net.download import DownloadError

        try:
            self.transfer.obtain(self.candidates(entry), entry.sha256, entry.size or None)
        except DownloadError as error:
            if isinstance(entry, PythonFile) or not error.absent:
                raise
            places = snapshot_places(self.site, entry, self.dates)
            if not places:
                raise
            self.reporter.info(f"{entry.file} left its archive; requesting it from the snapshot service")
            patient = replace(self.transfer, pause=self.transfer.pause * PATIENCE)
            try:
                with self.one_connection:
                    patient.obtain(places, entry.sha256, entry.size or None)
            except DownloadError as late:
                raise DownloadError([*error.misses, *late.misses]) from None

    def candidates(self, entry: DebianFile | PythonFile | SourceFile) -> list[str]:
        """Return where a file may be, in the order of their use."""
        from envbuild.lock.snapshots import package_arch
        from envbuild.lock.sources import candidate_places
        from envbuild.net.urls import join

        if isinstance(entry, DebianFile):
            return [join(root, entry.path) for root in self.site.roots(entry.archive, package_arch(entry.file))]
        if isinstance(entry, SourceFile):
            return candidate_places(self.site, entry.origin, entry.file)
        listed = [file for file in self.open_index(entry.origin).files(entry.name) if file.name == entry.file]
        return list(dict.fromkeys(file.url for file in listed if file.sha256 in ("", entry.sha256)))

    def open_index(self, name: str) -> PackageIndex:
        """Return the package index, or the one of a vendor (``pip:pytorch/cu113``)."""
        from envbuild.net.python_index import PackageIndex

        if not name:
            return self.index
        with self.guard:
            index = PackageIndex(self.transfer.transport, self.site.python(name), origin=name)
            return self.vendors.setdefault(name, index)

    def fetch_commit(self, source: SourceFile) -> None:
        """Fetch the tarball of a commit."""
        from envbuild.lock.git.lock_commit import obtain_commit

        obtain_commit(self.site, self.transfer.transport, self.transfer.store, self.reporter, source)
        self.transfer.progress(source.size)

    def fetch_image_blob(self, blob: ImageBlob) -> None:
        """Fetch a manifest, configuration or layer of the base image."""
        from envbuild.net.registry.client import obtain_blob

        obtain_blob(self.site, self.transfer.transport, self.transfer, blob.reference, blob.sha256, blob.size)

    def describe_failure(self, entry: Input, misses: Sequence[Miss]) -> Finding:
        """Return the finding for an input that no place provided."""
        from envbuild.net.urls import redact

        if not misses and isinstance(entry, PythonFile):
            python = self.site.python(input_origin(entry))
            listing = (*python.indexes, *python.links)
            misses = [Miss(redact(place), MissKind.ABSENT, "does not list it with this digest") for place in listing]
        if isinstance(entry, ImageBlob):
            from envbuild.net.registry.client import Repository

            place = Repository(parse_reference(entry.reference), self.site, self.transfer.transport)
            return place.not_available(describe_input(entry), misses).findings[0]
        if isinstance(entry, SourceFile):
            where = self.where.get(entry.file, "")
            error = not_available_error(entry.origin, entry.file, entry.sha256, misses, image=self.image, where=where)
            return error.findings[0]
        return not_found_finding(self.image, entry, misses)

    def add_input(self, entry: Input, finding: Finding) -> Finding:
        """Return an error of an index, a repository or a registry, with the input that it prevents."""
        if isinstance(entry, SourceFile):
            return replace(finding, where=finding.where or self.where.get(entry.file, ""))  # it names the source
        added = not_found_finding(self.image, entry, [Miss(finding.where, MissKind.UNREACHABLE, finding.message)])
        return replace(added, hint=finding.hint, mirror_lines=finding.mirror_lines) if finding.mirror_lines else added
