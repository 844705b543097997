"""The step lock → content store: every file of a lock, in parallel, resumed where it broke off, checked before it is
there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbuild.console import Talk, amount
from envbuild.errors import Finding, InputError
from envbuild.lock.lockfile import DebianFile, Lock, PythonFile, SourceFile
from envbuild.site import Site
from envbuild.store import Store

if TYPE_CHECKING:
    from envbuild.lock.index import Index
    from envbuild.lock.transfer import Transfer

File = DebianFile | PythonFile | SourceFile


def missing(lock: Lock, store: Store, names: Iterable[str] | None = None) -> list[File]:
    """The files of `lock` (of those in `names`, when given) that the store does not have; one entry a digest."""
    wanted = None if names is None else frozenset(names)
    found: dict[str, File] = {}
    for table in (lock.debian, lock.python_files, lock.sources):
        for file, entry in table.items():
            if (wanted is None or file in wanted) and entry.sha256 not in found and not store.has_blob(entry.sha256):
                found[entry.sha256] = entry
    return list(found.values())


def fetch(
    lock: Lock,
    store: Store,
    site: Site,
    talk: Talk,
    *,
    jobs: int = 8,
    names: Iterable[str] | None = None,
    pause: float = 0.5,
) -> None:
    """Bring the files of `lock` (of those in `names`, when given) into the store, `jobs` at a time.

    `pause` is the first wait in seconds before a failed download is tried again. Raises InputError with one finding for
    each file that cannot be had, after all others were fetched; EngineError when the store is full or cannot be
    written.
    """
    wanted = missing(lock, store, names)
    if not wanted:
        return
    # Imported here: a build whose inputs are all there must not pay for a network client.
    from envbuild.lock.index import Index
    from envbuild.lock.transfer import Transfer
    from envbuild.lock.transport import Transport

    transport = Transport(site)
    count = Progress(talk, sum(file.size for file in wanted))
    transfer = Transfer(transport, store, count.add, pause)
    work = Fetching(lock, site, transfer, Index(transport, site.python()))
    talk.start("fetch", f"fetching {len(wanted)} files, {amount(count.total)}")
    try:
        # The largest first: they decide when the last one is done.
        wanted.sort(key=lambda file: -file.size)
        findings = _all(wanted, work.one, jobs, transfer.stop)
    finally:
        talk.finish("fetch")
    if findings:
        raise InputError.of(findings)
    talk.say(f"fetched {len(wanted)} files, {amount(count.done)}")


def _all(files: list[File], one: Callable[[File], Finding | None], jobs: int, stop: threading.Event) -> list[Finding]:
    """The findings of all files; an error of the store, or an interruption, ends the rest at once."""
    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        futures = [pool.submit(one, file) for file in files]
        wait(futures, return_when=FIRST_EXCEPTION)
        failed = next((error for future in futures if future.done() and (error := future.exception())), None)
        if failed:
            raise failed
        return [finding for future in futures if (finding := future.result())]
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


class Progress:
    """Bytes of all files together, told as one task."""

    def __init__(self, talk: Talk, total: int) -> None:
        self.talk, self.total, self.done, self.guard = talk, total, 0, threading.Lock()

    def add(self, size: int) -> None:
        with self.guard:
            self.done += size
            self.talk.advance("fetch", self.done, self.total)


@dataclass(frozen=True, slots=True)
class Fetching:
    """Fetches single files."""

    lock: Lock
    site: Site
    transfer: Transfer
    index: Index

    def one(self, file: File) -> Finding | None:
        """Fetch one file; what stands in the way of it, if anything."""
        from envbuild.lock.transfer import Unobtained

        try:
            self.transfer.obtain(self.places(file), file.sha256)
        except Unobtained as error:
            return self.finding(file, error.misses, error.absent)
        except InputError as error:
            return self.finding(file, [(error.where, error.message)], False)
        return None

    def places(self, file: File) -> list[str]:
        """Where a file may be, in the order of asking."""
        from envbuild.lock.sources import candidates
        from envbuild.lock.transport import join

        if isinstance(file, DebianFile):
            return [join(place, file.path) for place in self.site.places(file.archive)[1]]
        if isinstance(file, SourceFile):
            return candidates(self.site, file.origin, file.file)
        listed = [entry for entry in self.index.files(file.name) if entry.name == file.file]
        return list(dict.fromkeys(entry.url for entry in listed if entry.sha256 in ("", file.sha256)))

    def finding(self, file: File, misses: list[tuple[str, str]], absent: bool) -> Finding:
        """What to tell of a file that cannot be had."""
        from envbuild.lock.sources import unobtainable
        from envbuild.lock.transport import shown

        if isinstance(file, SourceFile):
            return unobtainable(file.origin, file.file, file.sha256, misses).findings[0]
        kind = "Debian package" if isinstance(file, DebianFile) else "Python file"
        if not misses and isinstance(file, PythonFile):
            misses = [
                (shown(place), "does not list it with this digest")
                for place in (*self.site.python().indexes, *self.site.python().links)
            ]
            absent = bool(misses)
        looked = "".join(f"\n  {place}: {why}" for place, why in misses) or "\n  nowhere: no place is known for it"
        message = f"the {kind} {file.name} {file.version} ({file.file}, sha256 {file.sha256}) cannot be had"
        message += f"; looked at:{looked}"
        if absent:
            return Finding(message, "", f"envbuild lock {self.lock.image} --upgrade {file.name}")
        prefix = file.archive[: file.archive.find(":") + 1] if isinstance(file, DebianFile) else "python:"
        hint = f"run the command again; another place is given as  mirrors: {{{prefix} [PLACE]}}  in site.yaml"
        return Finding(message, "", hint)
