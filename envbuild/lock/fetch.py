"""The step lock → content store: every input of a lock, in parallel, resumed after an interruption, verified before it
is added.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envbuild.core.console import Reporter
from envbuild.core.errors import EnvbuildError, Finding, InputError
from envbuild.core.store.store import Store
from envbuild.core.text import amount, counted
from envbuild.lock.inputs import (
    ImageBlob,
    Input,
    describe_input,
    input_origin,
    list_inputs,
    not_found_finding,
    supplier,
)
from envbuild.lock.missing_inputs import not_available_error, site_lines
from envbuild.lock.model import DebianFile, Lock, PythonFile, SourceFile
from envbuild.net.miss import Miss, MissKind
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site import Site

if TYPE_CHECKING:
    from envbuild.net.download import Transfer
    from envbuild.net.python_index import PackageIndex


def inputs_to_fetch(
    lock: Lock, store: Store, names: Iterable[str] | None = None, *, manifest: bool = False
) -> list[Input]:
    """Return the inputs of `lock` that the store does not have, one entry for each digest.

    names: only inputs with these file names
    manifest: with the manifest of the base image
    """
    wanted = None if names is None else frozenset(names)
    found: dict[str, Input] = {}
    for entry in list_inputs(lock, manifest=manifest):
        if (wanted is None or entry.file in wanted) and entry.sha256 not in found and not store.has_blob(entry.sha256):
            found[entry.sha256] = entry
    return list(found.values())


def fetch(
    lock: Lock,
    store: Store,
    site: Site,
    reporter: Reporter,
    *,
    jobs: int = 8,
    names: Iterable[str] | None = None,
    manifest: bool = False,
    pause: float = 0.5,
    where: Mapping[str, str] | None = None,
) -> None:
    """Download the inputs of `lock` into the store, `jobs` at a time.

    names: only inputs with these file names
    manifest: with the manifest of the base image
    pause: seconds before the first retry of a failed download
    where: file name of a source → the place in the spec that requires it (`LockRequest.source_places`)

    Raises InputError with a finding for each input that is not available (one for all inputs of an origin that has no
    place here), after all others were fetched; EngineError if the store is full or cannot be written.
    """
    wanted = inputs_to_fetch(lock, store, names, manifest=manifest)
    if not wanted:
        return
    from envbuild.lock.snapshots import archive_dates

    try:
        fetch_inputs(
            lock.image, wanted, store, site, reporter, jobs=jobs, pause=pause, where=where, dates=archive_dates(lock)
        )
    except InputError as error:
        report_already_cached(lock.image, list_inputs(lock), store, site, reporter, [error])
        raise


def fetch_inputs(
    image: str,
    wanted: Sequence[Input],
    store: Store,
    site: Site,
    reporter: Reporter,
    *,
    jobs: int = 8,
    pause: float = 0.5,
    where: Mapping[str, str] | None = None,
    dates: Mapping[str, str] | None = None,
) -> None:
    """Download inputs that the store does not have. See `fetch`.

    dates: of the archives (`envbuild.lock.snapshots.archive_dates`), for files that left them
    """
    if not wanted:
        return
    # Imported here: a build whose inputs are all in the store must not load a network client.
    from envbuild.net.download import Transfer
    from envbuild.net.python_index import PackageIndex
    from envbuild.net.transport import Transport

    known, findings = split_by_supplier(wanted, site, where or {})
    if not known:
        raise InputError.of(findings)
    store.check_space((entry.sha256, entry.size) for entry in known)
    transport = Transport(site.network())
    count = Progress(reporter, sum(entry.size for entry in known))
    transfer = Transfer(transport, store, count.add, pause)
    index = PackageIndex(transport, site.python())
    work = Fetcher(image, site, transfer, index, reporter, where or {}, dates or {})
    reporter.start(
        "fetch", f"fetching {counted(len(known), 'file')}" + (f", {amount(count.total)}" if count.total else "")
    )
    try:
        # The largest first: they decide when the last one is done.
        known.sort(key=lambda entry: -entry.size)
        findings += merge_findings(_fetch_all(known, work.fetch_one, jobs, transfer.stop))
    finally:
        reporter.finish("fetch")
    if findings:
        raise InputError.of(findings)
    reporter.info(f"fetched {counted(len(known), 'file')}, {amount(count.done)}")


def report_already_cached(
    image: str, entries: Iterable[Input], store: Store, site: Site, reporter: Reporter, errors: Iterable[EnvbuildError]
) -> None:
    """Report how much of an image is already in the store if something else of it is not available, and the lines of a
    site file that would supply the rest."""
    cached = {entry.sha256 for entry in entries if store.has_blob(entry.sha256)}
    if cached:
        size = amount(sum(store.blob(sha256).stat().st_size for sha256 in cached))
        several = "1 input" if len(cached) == 1 else f"{len(cached)} inputs"
        reporter.info(
            f"{image}: {several}, {size}, in the store {store.root}; the next run fetches only what is missing"
        )
    report_site_lines(image, errors, site, reporter)


def report_site_lines(image: str, errors: Iterable[EnvbuildError], site: Site, reporter: Reporter) -> None:
    """Report the lines of a site file that would supply what is missing, if they are more than the hints contain."""
    if lines := site_lines(errors, site):
        file = "site.yaml" if site.where else "a new site.yaml"
        head = f"{image}: these lines of {file} would supply the rest; replace the places with yours:"
        reporter.info("\n".join([head, *lines]))


def split_by_supplier(
    wanted: Iterable[Input], site: Site, where: Mapping[str, str]
) -> tuple[list[Input], list[Finding]]:
    """Return the inputs whose origin has a place here, and the findings for the others."""
    from envbuild.lock.sources import no_mirror_findings  # with a network client

    origins: dict[str, list[Input]] = {}
    for entry in wanted:
        origins.setdefault(input_origin(entry), []).append(entry)
    without_place = [name for name in origins if not supplier(site, name)]
    found = [entry for name, entries in origins.items() if name not in without_place for entry in entries]
    findings = [no_mirror_findings(name, origins[name], where, public=site.use_host) for name in sorted(without_place)]
    return found, [finding for group in findings for finding in group]


def _fetch_all(
    entries: list[Input], one: Callable[[Input], list[Finding]], jobs: int, stop: threading.Event
) -> list[tuple[Input, list[Finding]]]:
    """Return each input with its findings; an error of the store, or an interruption, stops the rest at once."""
    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        futures = [pool.submit(one, entry) for entry in entries]
        wait(futures, return_when=FIRST_EXCEPTION)
        failed = next((error for future in futures if future.done() and (error := future.exception())), None)
        if failed:
            raise failed
        return [(entry, future.result()) for entry, future in zip(entries, futures, strict=True)]
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def merge_findings(results: Iterable[tuple[Input, list[Finding]]]) -> list[Finding]:
    """Return the findings, of a base image only the first: an image has dozens of blobs, and one cause."""
    found: list[Finding] = []
    images: dict[str, list[Finding]] = {}
    for entry, findings in results:
        group = images.setdefault(entry.reference, []) if isinstance(entry, ImageBlob) else found
        group += findings
    for first, *more in filter(None, images.values()):
        text = f"{first.message}\nand {len(more)} more parts of that image" if more else first.message
        found.append(replace(first, message=text))
    return found


class Progress:
    """The bytes of all files together, reported as one task."""

    def __init__(self, reporter: Reporter, total: int) -> None:
        self.reporter, self.total, self.done, self.guard = reporter, total, 0, threading.Lock()

    def add(self, size: int) -> None:
        with self.guard:
            self.done += size
            self.reporter.advance("fetch", self.done, self.total)


@dataclass(frozen=True, slots=True)
class Fetcher:
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
            self.transfer.obtain(self.candidates(entry), entry.sha256, entry.size)
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
                    patient.obtain(places, entry.sha256, entry.size)
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
