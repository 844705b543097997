"""Downloads of single files into the store: from the first of several places that has the file, resumed after an
interruption, and visible only when the digest matches.

The received part of a file is stored in ``partial/<sha256>.part`` of the store, so that the next attempt, in this
process or another, resumes from there (RFC 9110, section 14: a range request is answered 206 with the part, 200 with
all, or 416).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.store.permissions import move_into_store
from envbuild.core.store.store import Store
from envbuild.net.arrival import Arrival
from envbuild.net.body import CHUNK, read_body
from envbuild.net.failures import NotFoundError, RefusedError, UnreachableError
from envbuild.net.header_number import header_number
from envbuild.net.lanes import Lanes
from envbuild.net.miss import Miss, MissKind, all_absent
from envbuild.net.received_file import ReceivedFile
from envbuild.net.transport import DEFAULT_DELAY, Transport
from envbuild.net.urls import local_path, redact

ATTEMPTS = 4
LONGEST_PAUSE = 60.0  # seconds


class DownloadError(Exception):
    """No place provided the file: `misses` in the order of the requests."""

    def __init__(self, misses: Sequence[Miss]) -> None:
        super().__init__("; ".join(map(str, misses)))
        self.misses = misses

    @property
    def absent(self) -> bool:
        """Return whether every place answered that it does not have the file."""
        return all_absent(self.misses)


@dataclass(slots=True)
class Transfer:
    """A downloader of files into `store`. `pause` is the first wait in seconds between attempts; `stop` ends all work
    soon after it is set. `lanes`: those of parallel downloads, half of which rest when a server has too many.
    """

    transport: Transport
    store: Store
    progress: Callable[[int], None] = lambda size: None  # bytes received (negative: discarded)
    pause: float = 0.5
    stop: threading.Event = field(default_factory=threading.Event)
    attempts: int = ATTEMPTS
    lanes: Lanes | None = None
    local: threading.local = field(default_factory=threading.local)

    def obtain(
        self,
        places: Iterable[str],
        sha256: str = "",
        size: int | None = None,
        target: Path | None = None,
        arrival: Arrival | None = None,
    ) -> tuple[str, int]:
        """Download a file into the store, or to the new path `target` in it, and return its (sha256, size).

        With `sha256` only that content is accepted, without it any content. `size`: its bytes if they are known (None:
        at most those of `DownloadLimits.file`); a place that has more is left. `arrival`: for the thread that uses the
        first bytes meanwhile.

        Raises DownloadError, and EngineError when the store is full or cannot be written.
        """
        part = self.store.part(sha256 or secrets.token_hex(8))
        try:
            part.parent.mkdir(exist_ok=True)
            try:
                while True:
                    with self.store.filled(), part.open("a+b") as file:
                        # Another process may be fetching the same file: wait for it, then check what it left.
                        fcntl.flock(file, fcntl.LOCK_EX)
                        own = part.exists() and part.stat().st_ino == os.fstat(file.fileno()).st_ino
                        if sha256 and not target and self.store.has_blob(sha256, size or 0):
                            if own:  # made by opening it
                                part.unlink()
                            have = self.store.blob(sha256).stat().st_size
                            self.progress(have)
                            return sha256, have
                        if own:
                            received = ReceivedFile(file, self.progress, arrival)
                            return self._try_places(places, sha256, size, received, part, target)
            finally:
                if not sha256:
                    part.unlink(missing_ok=True)
        except OSError as error:
            raise EngineError(
                f"the store {self.store.root} cannot be written: {error}",
                hint="set ENVBUILD_STORE to a folder that you may write",
            ) from None

    def _try_places(
        self,
        places: Iterable[str],
        sha256: str,
        limit: int | None,
        file: ReceivedFile,
        part: Path,
        target: Path | None,
    ) -> tuple[str, int]:
        misses: list[Miss] = []
        for place in places:
            failed: UnreachableError | None = None
            self.local.version = ""  # of the content, as this place names it
            for attempt in range(self.attempts):
                if self.stopped(attempt, failed):
                    raise DownloadError([*misses, Miss(redact(place), MissKind.UNREACHABLE, "stopped")])
                try:
                    self.transport.check_host(place)
                    self._receive(place, file, sha256, limit)
                    found = file.digest()
                    if found != sha256 and is_web_page(place, file):
                        file.reset()
                        why = "it answers with a web page, perhaps one for a login or a licence"
                        raise RefusedError(why, kind=MissKind.UNAUTHORIZED)
                    if sha256 and found != sha256:
                        file.reset()
                        why = f"digest mismatch: expected sha256 {sha256}, got {found}"
                        raise RefusedError(why, kind=MissKind.MISMATCH)
                    part.chmod(0o644)
                    file.file.flush()
                    move_into_store(part, target or self.store.blob(found))
                    return found, file.size
                except (NotFoundError, RefusedError) as error:
                    misses.append(error.miss(redact(place)))
                    break
                except UnreachableError as error:
                    failed = error
                    if attempt == self.attempts - 1:
                        self.transport.failures.failed(place)
                        if not error.connected:
                            self.transport.failures.not_reached(place, str(error))
                        misses.append(error.miss(redact(place), f" ({self.attempts} attempts)"))
        if not file.size:
            part.unlink(missing_ok=True)
        raise DownloadError(misses)

    def stopped(self, attempt: int, failed: UnreachableError | None) -> bool:
        """Wait before an attempt (the first is 0), longer after each failure; return whether all work ends."""
        if not failed:
            return self.stop.wait(0)
        first = self.pause if failed.connected else min(self.pause, DEFAULT_DELAY)
        # Not all clients of a busy server return at the same moment.
        pause = min(first * 2 ** (attempt - 1), LONGEST_PAUSE) * random.uniform(0.5, 1)
        busy = self.lanes if failed.kind is MissKind.RATE_LIMITED else None
        with busy.rest() if busy else contextlib.nullcontext():
            return self.stop.wait(max(pause, failed.wait if failed.wait > DEFAULT_DELAY else 0.0))

    def _receive(self, place: str, file: ReceivedFile, sha256: str, size: int | None) -> None:
        """Append the content of `place` to `file`: with what it has of an earlier attempt, at most `size` bytes (None:
        not known)."""
        path, limit = local_path(place), self.transport.limits.file if size is None else size
        if not sha256 or path is not None or file.size > limit:
            file.reset()  # another place may have other content
        if path is not None:
            with self.transport.open(path) as source:
                while chunk := source.read(min(CHUNK, limit - file.size + 1)):
                    file.write(chunk)
                    if file.size > limit:
                        file.reset()
                        raise RefusedError(f"it has more than {limit} bytes", kind=MissKind.MISMATCH)
            return
        if file.size and file.size == size:  # stopped after the last byte: some registries answer such a range wrongly
            if file.digest() == sha256:
                return
            file.reset()
        have, version = file.size, getattr(self.local, "version", "")
        wanted = {"Range": f"bytes={have}-", **({"If-Range": version} if version else {})} if have else None
        with self.transport.get(place, wanted) as answer:
            status = answer.status_code
            tag = answer.headers.get("ETag", "")
            self.local.version = tag if tag.startswith('"') else ""  # RFC 9110, 13.1.5: not a weak one
            if status == 416:
                # The file is complete already, or longer than the source.
                if file.digest() == sha256:
                    return
                file.reset()
                raise UnreachableError("the partial download does not match")
            if have and not (status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")):
                file.reset()
                if status == 206:
                    raise UnreachableError("it returned another range than requested")
            expected = header_number(answer.headers.get("Content-Length", "")) or 0
            begin = file.size
            try:
                for chunk in read_body(answer, limit - begin, self.transport.limits, kind=MissKind.MISMATCH):
                    file.write(chunk)
                    if self.stop.is_set():
                        raise UnreachableError("stopped")
            except RefusedError:
                file.reset()
                raise RefusedError(f"it has more than {limit} bytes", kind=MissKind.MISMATCH) from None
            arrived = file.size - begin
            if arrived < expected:
                raise UnreachableError(f"the connection broke off after {arrived} of {expected} bytes")
        if have and status == 206 and file.digest() != sha256:
            # The first part may be of other content: download again from the start before the place is blamed.
            found = file.digest()
            file.reset()
            raise UnreachableError(f"the resumed download has sha256 {found}, not {sha256}")


def is_web_page(place: str, file: ReceivedFile) -> bool:
    """Return whether the content of an address that names no web page is one."""
    if local_path(place) is not None or place.endswith((".html", ".htm")):
        return False
    return file.head(256).lstrip().lower().startswith((b"<!doctype html", b"<html"))
