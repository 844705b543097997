"""Write a pack: the members of one layer, compressed in one pass while the layer is read.

Every whole block of a file is compressed alone; the tail (size modulo block) goes into a fragment block together with
the tails and small files around it. Equal tails of a layer share one place, blocks of zeros are not stored. Blocks
are compressed in a thread pool in batches and written in the order of the layer, so the bytes do not depend on the
number of threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from envbuild.errors import EnvbuildError, SpecError
from envbuild.oci.member import Kind, Member
from envbuild.squashfs.codec import BLOCKS, Codec
from envbuild.squashfs.index import (
    HEAD,
    MAGIC,
    RAW,
    TAIL,
    VERSION,
    Index,
    Pack,
    check_pack,
    check_path,
    crc32,
    encode,
    little_endian,
    read_pack,
)

__all__ = ["Pack", "PackWriter", "check_pack", "pack_name", "read_pack"]

BATCH = 1 << 20  # bytes handed to a thread at once: smaller batches cost switching, larger ones memory
Item = tuple[int, "bytes | memoryview"]  # (row of a file, or ~number of a fragment block; content)


def pack_name(diff_id: str, codec: str = "zstd", level: int = 3, block: int = 131072) -> str:
    """File name of the pack of a layer: covers all that its bytes depend on (layer, codec, library version, level,
    block, format).
    """
    return f"{diff_id.removeprefix('sha256:')}.{Codec(codec, level).library}-level{level}-block{block}.v{VERSION}"


class PackWriter:
    """A `Sink` that writes the pack `path` (renamed into place by `close`).

    `block` in bytes (a power of two, 4096 to 1 MiB), `jobs` threads (0: as many as this process may use). Used as a
    context manager it closes at the end, and discards what it wrote when an exception passes. Raises SpecError for
    wrong parameters, EnvbuildError for members that squashfs or a layer cannot hold.
    """

    def __init__(self, path: Path, *, codec: str = "zstd", level: int = 3, block: int = 131072, jobs: int = 0) -> None:
        little_endian()
        if block not in BLOCKS:
            raise SpecError(
                f"squashfs block size {block} is not a power of two from 4096 to 1048576", hint="use 131072"
            )
        self.path, self.block, self.codec = path, block, Codec(codec, level)
        self.index = Index(self.codec, block, self.codec.library)
        self.temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        self.file = self.temporary.open("wb", buffering=BATCH)
        self.file.write(HEAD.pack(MAGIC, VERSION, 0))
        self.position = HEAD.size
        jobs = jobs or len(os.sched_getaffinity(0))
        self.pool = ThreadPoolExecutor(jobs, thread_name_prefix="pack")
        self.ahead = jobs + 4  # batches in flight: bounds the memory
        self.pending: deque[Future[list[tuple[int, bytes, int]]]] = deque()
        self.batch: list[Item] = []
        self.batch_size = 0
        self.part = bytearray()  # of the current file, less than a block
        self.fragment = bytearray()
        self.tails: dict[tuple[bytes, int], tuple[int, int]] = {}  # (digest, length) → (fragment, offset)
        self.xattr_numbers: dict[tuple[tuple[bytes, bytes], ...], int] = {(): 0}
        self.row = self.left = -1
        self.zeros = bytes(block)

    # the sink
    def begin(self, member: Member) -> None:
        """The next member; `data` must then give exactly `member.size` bytes."""
        check_member(member)
        if self.left > 0:
            raise EnvbuildError("a layer ended a member before its data was complete")
        self.row = self.index.append(member, self._xattrs(member.xattrs))
        self.left = member.size

    def data(self, chunk: bytes) -> None:
        """The next bytes of the member (any number; the object must not change afterwards)."""
        self.left -= len(chunk)
        if self.left < 0:
            raise EnvbuildError(f"{self._name()} has more data than its header says")
        view = memoryview(chunk)
        if self.part:
            take = min(self.block - len(self.part), len(view))
            self.part += view[:take]
            view = view[take:]
            if len(self.part) < self.block:
                return
            self._submit(self.row, bytes(self.part))
            self.part.clear()
        whole = len(view) - len(view) % self.block
        for at in range(0, whole, self.block):
            self._submit(self.row, view[at : at + self.block])
        self.part += view[whole:]

    def end(self) -> None:
        """The member is complete. Raises EnvbuildError when data is missing."""
        if self.left:
            raise EnvbuildError(
                f"{self._name()} lacks {self.left} bytes of its data", hint="the layer is cut short; fetch it again"
            )
        if self.part:
            tail = bytes(self.part)
            self.part.clear()
            key = hashlib.blake2b(tail, digest_size=16).digest(), len(tail)
            place = self.tails.get(key)
            if place is None:
                if len(self.fragment) + len(tail) > self.block:
                    self._end_fragment()
                place = self.tails[key] = len(self.index.columns["fragment_sizes"]), len(self.fragment)
                self.fragment += tail
            self.index.columns["fragments"][self.row], self.index.columns["offsets"][self.row] = place

    def close(self) -> None:
        """Write what is left and the index; the pack is then at `path`."""
        try:
            if self.left > 0:
                raise EnvbuildError("the layer ended within a member")
            if self.fragment:
                self._end_fragment()
            self._send()
            while self.pending:
                self._write()
            data = encode(self.index)
            stored = Codec("zstd", 3).compress(data)
            digest = hashlib.blake2b(stored, digest_size=32).digest()
            self.file.write(stored + TAIL.pack(self.position, len(stored), len(data), digest, MAGIC))
            self.file.close()
            self.temporary.chmod(0o644)
            self.temporary.replace(self.path)
        except BaseException:
            self.discard()
            raise
        self.pool.shutdown()

    def discard(self) -> None:
        """Stop, and leave nothing behind."""
        self.pool.shutdown(cancel_futures=True)
        with contextlib.suppress(OSError):
            self.file.close()
        self.temporary.unlink(missing_ok=True)

    def __enter__(self) -> PackWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close() if kind is None else self.discard()

    # blocks
    def _end_fragment(self) -> None:
        columns = self.index.columns
        number = len(columns["fragment_sizes"])
        columns["fragment_sizes"].append(len(self.fragment))
        columns["fragment_starts"].append(0)
        columns["fragment_words"].append(0)
        self._submit(~number, bytes(self.fragment))
        self.fragment.clear()

    def _submit(self, owner: int, content: bytes | memoryview) -> None:
        self.batch.append((owner, content))
        self.batch_size += len(content)
        if self.batch_size >= BATCH:
            self._send()

    def _send(self) -> None:
        if self.batch:
            self.pending.append(self.pool.submit(self._compress, self.batch))
            self.batch, self.batch_size = [], 0
        while len(self.pending) > self.ahead:
            self._write()

    def _compress(self, batch: list[Item]) -> list[tuple[int, bytes, int]]:
        """In a thread: (owner, bytes to store, size word) of each block."""
        result = []
        for owner, content in batch:
            if owner >= 0 and content[0] == 0 and content[-1] == 0 and bytes(content) == self.zeros:
                result.append((owner, b"", 0))
                continue
            packed = self.codec.compress(content)
            raw = len(packed) >= len(content)
            stored = bytes(content) if raw else packed
            result.append((owner, stored, len(stored) | RAW if raw else len(stored)))
        return result

    def _write(self) -> None:
        """Take the oldest batch, write its blocks and enter them into the index."""
        columns, crc = self.index.columns, self.index.data_crc
        words, starts, stored = columns["words"], columns["starts"], columns["stored"]
        for owner, content, word in self.pending.popleft().result():
            if owner < 0:
                columns["fragment_starts"][~owner] = self.position
                columns["fragment_words"][~owner] = word
            else:
                if not starts[owner]:
                    columns["first"][owner], starts[owner] = len(words), self.position
                words.append(word)
                stored[owner] += len(content)
                if not word:
                    columns["sparse"][owner] += self.block
            self.file.write(content)
            crc = crc32(content, crc)
            self.position += len(content)
        self.index.data_crc = crc

    def _xattrs(self, xattrs: Mapping[bytes, bytes]) -> int:
        pairs = tuple(sorted(xattrs.items()))
        number = self.xattr_numbers.setdefault(pairs, len(self.index.xattr_sets))
        if number == len(self.index.xattr_sets):
            self.index.xattr_sets.append(pairs)
        return number

    def _name(self) -> str:
        return repr(os.fsdecode(self.index.paths[self.row])) if self.row >= 0 else "a member"


def check_member(member: Member) -> None:
    """Raise EnvbuildError for a member that cannot be stored."""
    check_path(member.path)
    name = os.fsdecode(member.path)
    if member.kind is not Kind.FILE and member.size:
        raise EnvbuildError(f"{name!r} is no file but has data")
    # kernels refuse a target longer than a page
    if member.kind is Kind.SYMLINK and (not 0 < len(member.link) < 4096 or b"\0" in member.link):
        raise EnvbuildError(f"{name!r} is a symlink whose target has {len(member.link)} bytes; 1 to 4095 are possible")
    if member.kind is Kind.HARDLINK:
        check_path(member.link)
    elif member.kind is not Kind.SYMLINK and member.link:
        raise EnvbuildError(f"{name!r} is no link but has a target")
    if not 0 <= member.mode <= 0o7777 or not all(0 <= number < 1 << 32 for number in (member.uid, member.gid)):
        raise EnvbuildError(
            f"{name!r} has mode {member.mode:o} and owner {member.uid}:{member.gid}, which cannot be stored"
        )
    if member.kind in (Kind.CHAR, Kind.BLOCK) and not (
        0 <= member.device[0] < 1 << 12 and 0 <= member.device[1] < 1 << 20
    ):
        raise EnvbuildError(f"{name!r} is a device {member.device[0]}:{member.device[1]}, which cannot be stored")
    if not member.path and member.kind is not Kind.DIR:
        raise EnvbuildError("the root of a layer is not a directory")
