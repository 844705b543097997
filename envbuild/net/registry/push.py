"""Push of blobs and manifests to one repository of a registry (OCI distribution spec 1.1, "Push").

A blob that the repository has is not sent. A new one is sent as a whole: every registry takes that. Where a proxy
refuses its size or cuts the connection, it is sent in chunks, and an interrupted one resumes after the last chunk that
the registry acknowledged.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import IO
from urllib.parse import quote

from envbuild.net.failures import NotFoundError, RefusedError, UnreachableError
from envbuild.net.header_number import header_number
from envbuild.net.lanes import Lanes
from envbuild.net.registry.client import ACCEPT, RegistryAddress, RegistryTransport
from envbuild.net.registry.upload import FIRST_PAUSE, TRIES, RegistryAnswer, RegistryRefusal, persist, send

CHUNKED_FROM = 256 << 20  # bytes of a blob that is sent in chunks after a failure of the whole
CHUNK = 64 << 20
SMALL_CHUNK = 4 << 20  # the most that ghcr.io takes in one request with Content-Range (oras-project/rust-oci-client#35)
SMALL_CHUNK_HOSTS = ("ghcr.io",)
TOO_LARGE = 413
MOUNTED = 201  # the answer to a mount; 202: an upload began
PARALLEL = 4  # blobs that are sent at a time
BYTES = "application/octet-stream"


class FilePart(io.RawIOBase):
    """The bytes `start` to `end` of a file, as a file of its own: requests sends what `len` names."""

    def __init__(self, file: IO[bytes], start: int, end: int, sent: Callable[[int], None] = lambda size: None) -> None:
        self.file, self.start, self.end, self.sent = file, start, end, sent
        self.position = 0

    def __len__(self) -> int:
        return self.end - self.start

    def part(self, start: int, end: int) -> FilePart:
        """Return a part of this part."""
        return FilePart(self.file, self.start + start, self.start + end, self.sent)

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = 0) -> int:
        self.position = offset if whence == 0 else len(self) + offset
        return self.position

    def read(self, size: int = -1) -> bytes:
        left = len(self) - self.position
        self.file.seek(self.start + self.position)
        chunk = self.file.read(left if size < 0 else min(size, left))
        self.position += len(chunk)
        self.sent(len(chunk))
        return chunk


class UploadStateError(RefusedError):
    """A registry has other bytes of an upload than it acknowledged: the blob starts again."""


@dataclass(slots=True)
class Push:
    """Pushes to the repository `at`. `sent` is called with bytes as they are sent; `pause`: seconds before the first
    retry. `known`: repositories of the same registry that had a blob (hex), which it can copy itself."""

    at: RegistryAddress
    transport: RegistryTransport
    sent: Callable[[int], None] = field(default=lambda size: None)
    pause: float = FIRST_PAUSE
    known: Mapping[str, str] = field(default_factory=dict)
    lanes: Lanes = field(default_factory=lambda: Lanes(PARALLEL))

    def has_blob(self, digest: str) -> bool:
        """Return whether the repository has a blob (hex)."""
        return self._exists(self.at.blob(digest), {})

    def manifest_digest(self, name: str) -> str:
        """Return the digest (``sha256:…``) of the manifest that a tag or a digest names; empty if there is none."""

        def ask() -> str:
            try:
                page = self.transport.read(self.at.manifest_url(name), ACCEPT, self.transport.limits.manifest)
            except NotFoundError:
                return ""
            return f"sha256:{hashlib.sha256(page.content).hexdigest()}"

        return persist(ask, self.pause, self.lanes)

    def blob(
        self, content: Callable[[], AbstractContextManager[IO[bytes]]], digest: str, size: int, start: int = 0
    ) -> bool:
        """Push `size` bytes from `start` on of the file that `content` returns, whose digest (hex) the caller knows;
        the file can be read again from any position. Return whether it had to be sent.

        Raises RegistryRefusal, UnreachableError, and what reading the file raises.
        """
        if self.has_blob(digest) or self.mount(digest):
            return False
        with content() as opened:
            file = FilePart(opened, start, start + size, self.sent)
            try:
                persist(lambda: self._whole(file, digest), self.pause, self.lanes)
            except UnreachableError as error:
                too_large = isinstance(error, RegistryRefusal) and error.status == TOO_LARGE
                cut = not isinstance(error, RefusedError) and size > CHUNKED_FROM
                if not (too_large or cut):
                    raise
                self._chunked(file, digest)
        return True

    def manifest(self, content: bytes, kind: str, name: str) -> RegistryAnswer:
        """Put a manifest under a tag or its digest (``sha256:…``). Raises RegistryRefusal, UnreachableError."""
        headers = {"Content-Type": kind}
        return persist(
            lambda: send(self.transport, "PUT", self.at.manifest_url(name), headers, content), self.pause, self.lanes
        )

    def _exists(self, url: str, headers: dict[str, str]) -> bool:
        def ask() -> bool:
            try:
                send(self.transport, "HEAD", url, headers)
            except RegistryRefusal as error:
                if error.status == 404:
                    return False
                raise
            return True

        return persist(ask, self.pause, self.lanes)

    def mount(self, digest: str) -> bool:
        """Let the registry take a blob from another of its repositories; return whether it did.

        Where it does not (another login, removed meanwhile), the upload that it began is ended.
        """
        other = self.known.get(digest, self.at.repository)
        if other == self.at.repository:
            return False
        where = f"mount={quote(f'sha256:{digest}')}&from={quote(other, safe='')}"
        try:
            answer = send(self.transport, "POST", f"{self.at.url}/v2/{self.at.repository}/blobs/uploads/?{where}")
            if answer.status == MOUNTED:
                return True
            send(self.transport, "DELETE", answer.location)
        except UnreachableError:
            pass
        return False

    def _start(self) -> RegistryAnswer:
        return send(self.transport, "POST", f"{self.at.url}/v2/{self.at.repository}/blobs/uploads/")

    def _whole(self, file: FilePart, digest: str) -> None:
        """Send a blob with one request of its bytes."""
        begun, size, body = self._start(), len(file), file.part(0, len(file))
        headers = {"Content-Type": BYTES, "Content-Length": str(size)}
        try:
            send(self.transport, "PUT", with_digest(begun.location, digest), headers, body if size else b"")
        except UnreachableError:
            self.sent(-body.position)
            raise

    def _chunked(self, file: FilePart, digest: str) -> None:
        """Send a blob in chunks; from its begin again where the registry has other bytes than it acknowledged."""
        for _ in range(TRIES - 1):
            with contextlib.suppress(UploadStateError):
                return self._chunks(file, digest)
        return self._chunks(file, digest)

    def _chunks(self, file: FilePart, digest: str) -> None:
        """Send a blob in chunks. A chunk that fails is sent again after the registry stated what it has.

        Raises UploadStateError if that is not what it acknowledged."""
        begun = persist(self._start, self.pause, self.lanes)
        location, at, size = begun.location, 0, len(file)
        chunk = max(self._chunk_size(), begun.smallest_chunk)
        while at < size:
            location, at = self._chunk(file, location, at, min(at + chunk, size)), min(at + chunk, size)
        closing = {"Content-Type": BYTES, "Content-Length": "0"}
        persist(
            lambda: send(self.transport, "PUT", with_digest(location, digest), closing, b""), self.pause, self.lanes
        )

    def _chunk(self, file: FilePart, location: str, at: int, end: int) -> str:
        """Send the bytes `at` to `end` of a blob. Return the address for the next ones."""
        headers = {"Content-Type": BYTES, "Content-Length": str(end - at), "Content-Range": f"{at}-{end - 1}"}
        failed = False

        def patch() -> str:
            nonlocal failed
            if failed:
                self._check_position(location, at)
            body = file.part(at, end)
            try:
                return send(self.transport, "PATCH", location, headers, body).location
            except UnreachableError:
                failed = True
                self.sent(-body.position)
                raise

        return persist(patch, self.pause, self.lanes)

    def _check_position(self, location: str, at: int) -> None:
        """Raise UploadStateError if the registry has another number of bytes of an upload than it acknowledged (`at`);
        end that upload then."""
        with contextlib.suppress(RegistryRefusal):
            end = header_number(send(self.transport, "GET", location).headers.get("Range", "").rpartition("-")[2])
            if end in (None, 0, at - 1):  # "0-0" is none or one byte
                return
        with contextlib.suppress(UnreachableError):
            send(self.transport, "DELETE", location)
        raise UploadStateError(f"the upload is not as the registry acknowledged it ({at} bytes)")

    def _chunk_size(self) -> int:
        host = self.at.url.partition("://")[2]
        return SMALL_CHUNK if host in SMALL_CHUNK_HOSTS else CHUNK


def with_digest(location: str, digest: str) -> str:
    """Return the address that ends an upload: `location` may have parameters already."""
    return f"{location}{'&' if '?' in location else '?'}digest={quote(f'sha256:{digest}')}"
