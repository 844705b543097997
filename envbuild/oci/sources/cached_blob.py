"""A layer's blob that is kept in the store while it is read.

What comes from the registry is also written to ``partial/<sha256>.part``, where `envbuild fetch` has its own, and
becomes a blob of the store once it is whole. A run that was killed leaves the part, and the next one reads that first
and asks the registry for the rest only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from typing import IO

from envbuild.core.errors import InputError
from envbuild.core.store.permissions import folder_in, give, share, used
from envbuild.core.store.store import Store
from envbuild.oci.sources.base import RawStream
from envbuild.oci.sources.blob_stream import RegistryBlob


class CachedBlob(RawStream):
    """The blob with the sha256 `digest` (hex) and `size` bytes that `source` gives, kept in `store`.

    The digest is taken of everything that is read, so that no other content is ever kept under its name; who reads it
    checks it as well. Where another process is keeping the same blob now, it is read and not kept.
    """

    def __init__(self, source: RegistryBlob, store: Store, digest: str, size: int) -> None:
        self.source, self.store, self.digest, self.length = source, store, digest, size
        self.hash, self.at = hashlib.sha256(), 0
        self.file: IO[bytes] | None = open_part(store, digest)
        self.there = 0  # bytes of an earlier run
        if self.file is not None:
            self.there = os.fstat(self.file.fileno()).st_size
            if self.there > size:
                self.file.truncate(0)
                self.there = 0
        source.position = self.there

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; none at the end. Raises what `source` raises, EngineError when the store is full."""
        if self.at >= self.length:
            return b""
        chunk = b""
        if self.file is not None and self.at < self.there:
            chunk = os.pread(self.file.fileno(), min(size, self.there - self.at) if size >= 0 else 1 << 20, self.at)
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
                self.end()
        return chunk

    def end(self) -> None:
        """All of it is here: it becomes a blob of the store, or is thrown away."""
        assert self.file is not None
        part = self.store.part(self.digest)
        if self.hash.hexdigest() == self.digest:
            part.chmod(0o644)
            give(part, self.store.blob(self.digest))
        else:
            part.unlink(missing_ok=True)
        self.file.close()
        self.file = None

    def close(self) -> None:
        if self.file is not None:
            self.file.close()  # what came stays for the next run
            self.file = None
        self.source.close()
        super().close()


def has_blob_or_part(store: Store, digest: str) -> bool:
    """Whether the store has something of a blob that may turn out to be wrong."""
    return store.has_blob(digest) or store.part(digest).is_file()


def open_part(store: Store, digest: str) -> IO[bytes] | None:
    """The file that a blob is written to, open at its end and locked; None: somebody else has it."""
    path = store.part(digest)
    folder_in(path.parent)
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("a+b", buffering=0))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return None
        if not path.exists() or path.stat().st_ino != os.fstat(file.fileno()).st_ino:
            return None  # it became a blob just now
        share(path)
        stack.pop_all()
        return file


def open_cached(store: Store, digest: str, *, again: bool) -> IO[bytes] | None:
    """A blob of the store. `again`: what it gave before was wrong, so that it is looked at as a whole; a damaged one is
    set aside. None where there is none."""
    if again:
        with contextlib.suppress(InputError, FileNotFoundError):
            store.check_blob(digest)
    path = store.blob(digest)
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        return None
    used(path)
    return file
