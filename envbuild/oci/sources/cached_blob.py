"""Blobs of layers that are cached in the store while they are read.

The bytes from the registry are also written to ``partial/<sha256>.part``, where `envbuild fetch` has its own, and
become a blob of the store once it is complete. An interrupted run leaves the part; the next one reads that first and
requests only the rest from the registry.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from typing import IO

from envbuild.core.errors import InputError
from envbuild.core.regular_file import NotRegularError, open_regular
from envbuild.core.store.permissions import move_into_store, record_use
from envbuild.core.store.store import Store
from envbuild.oci.sources.base import RawStream
from envbuild.oci.sources.blob_stream import RegistryBlob


class CachedBlob(RawStream):
    """Blob with the sha256 `digest` (hex) and `size` bytes, read from `source` and cached in `store`.

    The digest of everything that is read is computed, so that no other content is ever cached under its name; the
    reader checks it as well. If another process is caching the same blob now, it is read and not cached.
    """

    def __init__(self, source: RegistryBlob, store: Store, digest: str, size: int) -> None:
        self.source, self.store, self.digest, self.length = source, store, digest, size
        self.hash, self.at = hashlib.sha256(), 0
        self.file: IO[bytes] | None = open_part(store, digest)
        self.resumed = 0  # bytes of an earlier run
        if self.file is not None:
            self.resumed = os.fstat(self.file.fileno()).st_size
            if self.resumed > size:
                self.file.truncate(0)
                self.resumed = 0
        source.position = self.resumed

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes; none at the end. Raises what `source` raises, EngineError if the store is full."""
        if self.at >= self.length:
            return b""
        chunk = b""
        if self.file is not None and self.at < self.resumed:
            chunk = os.pread(self.file.fileno(), min(size, self.resumed - self.at) if size >= 0 else 1 << 20, self.at)
        if not chunk:
            chunk = self.source.read(size)
            if self.file is not None:
                left = memoryview(chunk)
                with self.store.filled():
                    while left:
                        left = left[self.file.write(left) :]
        self.at += len(chunk)
        if self.file is not None:
            self.hash.update(chunk)
            if self.at >= self.length:
                self.finish()
        return chunk

    def finish(self) -> None:
        """Move the complete file into the store, or discard it if its digest is wrong."""
        assert self.file is not None
        part = self.store.part(self.digest)
        if self.hash.hexdigest() == self.digest:
            part.chmod(0o644)
            move_into_store(part, self.store.blob(self.digest))
        else:
            part.unlink(missing_ok=True)
        self.file.close()
        self.file = None

    def close(self) -> None:
        if self.file is not None:
            self.file.close()  # the part remains for the next run
            self.file = None
        self.source.close()
        super().close()


def has_blob_or_part(store: Store, digest: str) -> bool:
    """Return whether the store has a blob or a part of it, whose content may turn out to be wrong."""
    return store.has_blob(digest) or store.part(digest).is_file()


def open_part(store: Store, digest: str) -> IO[bytes] | None:
    """Return the file that a blob is written to, open at its end and locked; None: another process writes it."""
    path = store.part(digest)
    path.parent.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("a+b", buffering=0))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return None
        if not path.exists() or path.stat().st_ino != os.fstat(file.fileno()).st_ino:
            return None  # it became a blob just now
        stack.pop_all()
        return file


def open_cached(store: Store, digest: str, *, again: bool) -> IO[bytes] | None:
    """Return a blob of the store; None if there is none.

    `again`: its content was wrong before, so that all of it is checked; a corrupt one is removed.
    """
    if again:
        with contextlib.suppress(InputError, FileNotFoundError):
            store.check_blob(digest)
    path = store.blob(digest)
    try:
        file = open_regular(path, buffering=0, follow=False)
    except (FileNotFoundError, NotRegularError):
        return None
    record_use(path)
    return file
