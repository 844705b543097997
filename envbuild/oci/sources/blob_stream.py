"""Blobs of a registry as streams that survive a broken connection.

Bytes go from the socket to the reader; none are stored. After a broken connection the stream resumes with a range
request (RFC 9110, section 14) at the first missing byte, at the same place or the next one that has the blob: a blob is
named by its digest, so that all places have the same bytes, and the reader checks that.
"""

from __future__ import annotations

import contextlib
from typing import IO, Any

from envbuild.core import signals
from envbuild.core.errors import EngineError
from envbuild.net.body import Pace, read_some
from envbuild.net.failures import NotFoundError, RefusedError, TransportError, UnreachableError, describe_error
from envbuild.net.miss import Miss
from envbuild.net.registry.client import RegistryAddress, Repository
from envbuild.net.registry.layout_folder import LayoutFolder
from envbuild.net.urls import local_path
from envbuild.oci.manifest import BlobDescriptor
from envbuild.oci.sources.base import RawStream

ATTEMPTS = 5  # in a row without PROGRESS
PROGRESS = 1 << 20
PAUSE = 0.5  # seconds before the second attempt; doubled for each one after
CHUNK = 1 << 20


class RegistryBlob(RawStream):
    """Blob `part` of `repository`. `first`: index of the place that is tried first.

    `read` raises InputError, with every place and its failure, if no place has it complete.
    """

    def __init__(self, repository: Repository, part: BlobDescriptor, first: int = 0, pause: float = PAUSE) -> None:
        places = repository.places
        self.repository, self.part, self.pause = repository, part, pause
        self.places: list[RegistryAddress | LayoutFolder] = [
            *places[first % len(places) :],
            *places[: first % len(places)],
        ]
        self.misses: list[Miss] = []
        self.position = self.mark = self.failures = 0
        self.source: IO[bytes] | Any = None
        self.pace: Pace | None = None  # of a connection; None: a file
        self.resources = contextlib.ExitStack()

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes; none at the end. Raises InputError, EngineError after a signal."""
        from urllib3.exceptions import HTTPError

        size = CHUNK if size < 0 else size
        while self.places:
            if signals.number():
                raise EngineError("stopped")
            try:
                if self.source is None:
                    self.connect(self.places[0])
                chunk = self.read_source(size)
                if not chunk and self.position < self.part.size:
                    raise UnreachableError(f"the connection broke off after {self.position} of {self.part.size} bytes")
                self.position += len(chunk)
                return chunk
            except (NotFoundError, RefusedError) as error:
                self.give_up(error)
            except UnreachableError as error:
                self.retry(error)
            except (HTTPError, OSError) as error:
                self.retry(UnreachableError(describe_error(error)))
        raise self.repository.not_available(
            f"a part of the image {self.repository.reference.name} (sha256 {self.part.digest})", self.misses
        )

    def read_source(self, size: int) -> bytes:
        """Return the next bytes of the current place, at most one more than the blob has: the reader reports that."""
        size = min(size, self.part.size + 1 - self.position)
        if not size:
            return b""
        if self.pace is None:
            chunk: bytes = self.source.read(size)
            return chunk
        return read_some(self.source, size, self.pace)

    def retry(self, error: UnreachableError) -> None:
        """Disconnect and wait: `pause`, or the seconds that the place requires. After ATTEMPTS give the place up."""
        self.disconnect()
        if self.position - self.mark >= PROGRESS:
            self.failures = 0
        self.mark, self.failures = self.position, self.failures + 1
        if self.failures >= ATTEMPTS:
            self.give_up(error, f" ({ATTEMPTS} attempts)")
        else:
            signals.pause(max(self.pause * 2 ** (self.failures - 1), error.wait))

    def give_up(self, error: TransportError, more: str = "") -> None:
        """Record the failure of the current place, and continue with the next one."""
        self.disconnect()
        self.misses.append(error.miss(str(self.places.pop(0)), more))
        self.failures = 0

    def connect(self, place: RegistryAddress | LayoutFolder) -> None:
        """Open the blob at `position`. Raises NotFoundError, UnreachableError, RefusedError, OSError."""
        url = place.blob(self.part.digest)
        path = local_path(url)
        if path is not None:
            self.source = self.resources.enter_context(self.repository.transport.open(path))
            self.source.seek(self.position)
            self.pace = None
            return
        headers = {"Range": f"bytes={self.position}-"} if self.position else None
        answer = self.resources.enter_context(self.repository.transport.get(url, headers))
        if answer.status_code == 416:
            raise UnreachableError("it has less than it sent before")
        start = self.position if answer.status_code == 206 else 0
        if start and not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise UnreachableError("it answered with another range than the requested one")
        self.resources.enter_context(signals.at_stop(getattr(answer.raw, "shutdown", answer.close)))  # urllib3 2.3
        self.source, self.pace = answer.raw, Pace(self.repository.transport.limits)
        missing = self.position - start  # a place without range support starts again: skip what was read
        while missing:
            chunk = read_some(self.source, min(CHUNK, missing), self.pace)
            if not chunk:
                raise UnreachableError("the connection broke off")
            missing -= len(chunk)

    def disconnect(self) -> None:
        from urllib3.exceptions import HTTPError

        self.source = None
        with contextlib.suppress(HTTPError, OSError):
            self.resources.close()

    def close(self) -> None:
        self.disconnect()
        super().close()
