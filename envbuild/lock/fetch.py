"""The step lock → content store: every input of a lock, in parallel, resumed after an interruption, verified before it
is added.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.console import Reporter
from envbuild.core.errors import Finding, InputError
from envbuild.core.store.store import Store
from envbuild.core.text import amount, counted
from envbuild.lock.base_image.own_images import NO_IMAGES, OwnImages
from envbuild.lock.cached_inputs import report_already_cached
from envbuild.lock.input_fetcher import InputFetcher
from envbuild.lock.inputs import ImageBlob, Input, input_origin, list_inputs, supplier
from envbuild.lock.model import Lock, PythonFile
from envbuild.net.site import Site

if TYPE_CHECKING:
    from envbuild.spec.dev_project import DevContent


def inputs_to_fetch(
    lock: Lock,
    store: Store,
    names: Iterable[str] | None = None,
    *,
    digests: Collection[str] | None = None,
    manifest: bool = False,
) -> list[Input]:
    """Return the inputs of `lock` that the store does not have, one entry for each digest.

    names: only inputs with these file names
    digests: only inputs with these sha256
    manifest: with the manifest of the base image
    """
    wanted = None if names is None else frozenset(names)
    found: dict[str, Input] = {}
    for entry in list_inputs(lock, manifest=manifest):
        named = wanted is None or entry.file in wanted
        named = named and (digests is None or entry.sha256 in digests)
        if named and entry.sha256 not in found and not store.has_blob(entry.sha256, entry.size):
            found[entry.sha256] = entry
    return list(found.values())


def without_base(
    lock: Lock, wanted: list[Input], folder: Path, own: OwnImages, site: Site, store: Store, reporter: Reporter
) -> list[Input]:
    """Return the inputs that a store still lacks after it got the base image of a lock from this machine, if it is a
    file or an image of the project, and `wanted` (`envbuild.lock.base_file.provide_base`). Raises EngineError if the
    store is full."""
    if lock.base_image is None:
        return wanted
    from envbuild.lock.base_file import provide_base

    provide_base(lock, wanted, folder, own, site, store, reporter)
    return [entry for entry in wanted if not store.has_blob(entry.sha256, entry.size)]


def fetch(
    lock: Lock,
    store: Store,
    site: Site,
    reporter: Reporter,
    *,
    jobs: int = 8,
    names: Iterable[str] | None = None,
    digests: Collection[str] | None = None,
    manifest: bool = False,
    pause: float = 0.5,
    where: Mapping[str, str] | None = None,
    folder: Path | None = None,
    own: OwnImages = NO_IMAGES,
    base: bool = True,
    contents: Iterable[DevContent] = (),
) -> None:
    """Download the inputs of `lock` into the store, `jobs` at a time.

    names: only inputs with these file names
    digests: only inputs with these sha256
    manifest: with the manifest of the base image
    pause: seconds before the first retry of a failed download
    where: file name of a source → the place in the spec that requires it (`LockRequest.source_places`)
    folder: that of the spec, which the paths of wheels and of a base in a file are relative to
    own: images of the project, of which one may be the base
    base: whether the store may get a base in a file, or of the project, from there; not again after `without_base`
    contents: of project folders, which no lock has (`LockRequest.contents`)

    Raises InputError with a finding for each input that is not available (one for all inputs of an origin that has no
    place here), after all others were fetched; EngineError if the store is full or cannot be written.
    """
    if contents := [item for item in contents if digests is None or item.sha256 in digests]:
        from envbuild.lock.dev_content import add_contents

        add_contents(contents, store)
    wanted = inputs_to_fetch(lock, store, names, digests=digests, manifest=manifest)
    if not wanted:
        return
    if folder is not None and base:
        wanted = without_base(lock, wanted, folder, own, site, store, reporter)
        if not wanted:
            return
    from envbuild.lock.python.local_projects import add_wheels, is_local
    from envbuild.lock.snapshots import archive_dates

    local = [entry for entry in wanted if isinstance(entry, PythonFile) and is_local(entry)]
    wanted = [entry for entry in wanted if entry not in local]
    if local and (findings := add_wheels(local, folder or Path(), store)):
        raise InputError.of(findings)
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
    work = InputFetcher(image, site, transfer, index, reporter, where or {}, dates or {})
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
