"""The writer of packs: the members of one layer, compressed in one pass while the layer is read.

Every whole block of a file is compressed alone (`envbuild.squashfs.pack.blocks`); the tail (size modulo block) goes
into a fragment block together with the tails and small files around it (`envbuild.squashfs.pack.fragments`). Equal
files and equal tails of a layer are stored once, blocks of zeros not at all.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from envbuild.core.errors import EnvbuildError, SpecError
from envbuild.core.store.build_records import PACK_VERSION
from envbuild.oci.tar.member import Member
from envbuild.squashfs.codec import BLOCKS, Codec
from envbuild.squashfs.pack.append_file import Buffer, write_all
from envbuild.squashfs.pack.blocks import BlockWriter
from envbuild.squashfs.pack.check_member import check_member
from envbuild.squashfs.pack.file import Pack, pack_foot, pack_head
from envbuild.squashfs.pack.fragments import FragmentWriter
from envbuild.squashfs.pack.index import PackIndex, require_little_endian
from envbuild.squashfs.pack.tar_pieces import TarPieces
from envbuild.squashfs.pack.workers import Workers

# Of one file (4 TiB at 128 KiB): the size words of a file that claims to be sparse take at most 128 MiB of memory.
MAX_BLOCKS = 1 << 25


def pack_name(diff_id: str, codec: str = "zstd", level: int = 3, block: int = 131072) -> str:
    """Return the file name of the pack of a layer: covers all that its bytes depend on (layer, codec, library version,
    level, block, format).
    """
    return f"{diff_id.removeprefix('sha256:')}.{Codec(codec, level).library}-level{level}-block{block}.v{PACK_VERSION}"


@dataclass(frozen=True, slots=True)
class Region:
    """A place in an open file for a pack's data instead of a file of its own: `base` is the pack's position 0; `done`
    gets the pack.
    """

    file: int
    base: int
    done: Callable[[Pack], None]


class PackWriter:
    """A `Sink` that writes the pack `path` (renamed into place by `close`).

    `block` in bytes (a power of two, 4096 to 1 MiB), `jobs` threads of its own (0: as many as this process may use) or
    those that it shares with other layers. With `into` only the data is written, there, and `path` is that file's name.
    Used as a context manager it closes at the end, and
    discards what it wrote when an exception passes. Raises SpecError for wrong parameters, EnvbuildError for members
    that squashfs or a layer cannot hold.
    """

    def __init__(
        self,
        path: Path,
        *,
        codec: str = "zstd",
        level: int = 3,
        block: int = 131072,
        jobs: int | Workers = 0,
        into: Region | None = None,
    ) -> None:
        require_little_endian()
        if block not in BLOCKS:
            raise SpecError(
                f"squashfs block size {block} is not a power of two from 4096 to 1048576", hint="use 131072"
            )
        self.path, self.block, self.codec, self.into = path, block, Codec(codec, level), into
        self.index = PackIndex(self.codec, block, self.codec.library)
        self.temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        if into:
            self.file, base = into.file, into.base
        else:
            self.file, base = os.open(self.temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), 0
        workers = jobs if isinstance(jobs, Workers) else Workers(jobs)
        self.own = None if workers is jobs else workers
        self.blocks = BlockWriter(self.file, base, self.index, workers)
        self.pieces = TarPieces(FragmentWriter(self.index, self.blocks))
        self.parts: list[Buffer] = []  # of the current file, together less than a block
        self.buffered = 0  # their length
        self.zero = memoryview(bytes(block))
        self.xattr_numbers: dict[tuple[tuple[bytes, bytes], ...], int] = {(): 0}
        self.row = -1
        self.left = 0
        self.open = True

    # the sink
    def begin(self, member: Member) -> None:
        """Begin the next member; `data` and `zeros` must then provide exactly `member.size` bytes."""
        kind = check_member(member)
        if self.left:
            raise EnvbuildError("a layer ended a member before its data was complete")
        if member.size > MAX_BLOCKS * self.block:
            raise EnvbuildError(f"{os.fsdecode(member.path)!r} claims a size of {member.size} bytes")
        xattrs = self._xattrs(member.xattrs) if member.xattrs else 0
        try:
            self.row = self.index.append(member, kind, xattrs)
        except struct.error as error:
            raise EnvbuildError(f"{os.fsdecode(member.path)!r} cannot be stored: {error}") from error
        self.left = member.size
        self.pieces.begin(self.row, member)

    def data(self, chunk: Buffer) -> None:
        """Add the next bytes of the member (any number; the object must not change afterwards)."""
        count = len(chunk)
        self.left -= count
        if self.left < 0:
            raise EnvbuildError(f"{self._name()} has more data than its header declares")
        if self.buffered + count < self.block:
            if count:
                self.parts.append(chunk)
                self.buffered += count
            return
        self.pieces.end()
        view = memoryview(chunk)
        if self.buffered:
            take = self.block - self.buffered
            self.parts.append(view[:take])
            self.blocks.add(self.row, b"".join(self.parts))
            self.parts.clear()
            view = view[take:]
        whole = len(view) - len(view) % self.block
        for at in range(0, whole, self.block):
            self.blocks.add(self.row, view[at : at + self.block])
        self.buffered = len(view) - whole
        if self.buffered:
            self.parts.append(view[whole:])

    def zeros(self, count: int) -> None:
        """Add `count` bytes of zeros to the member: whole blocks of them cost nothing."""
        if count < 0 or count > self.left:
            raise EnvbuildError(f"{self._name()} has more data than its header declares")
        if self.buffered:
            some = min(self.block - self.buffered, count)
            self.data(self.zero[:some])
            count -= some
        blocks, rest = divmod(count, self.block)
        self.left -= blocks * self.block
        if blocks:
            self.pieces.end()
            self.blocks.add_zeros(self.row, blocks)
        self.data(self.zero[:rest])

    def end(self) -> None:
        """End the member. Raises EnvbuildError when data is missing."""
        if self.left:
            raise EnvbuildError(
                f"{self._name()} lacks {self.left} bytes of its data", hint="the layer is truncated; fetch it again"
            )
        if self.buffered:
            self.pieces.add(self.row, self.parts[0] if len(self.parts) == 1 else b"".join(self.parts))
            self.parts.clear()
            self.buffered = 0

    def close(self) -> None:
        """Write what is left and the index; the pack is then at `path`."""
        if not self.open:
            return
        try:
            if self.left:
                raise EnvbuildError("the layer ended within a member")
            self.pieces.flush()
            end = self.blocks.finish()
            self.index.seal()
            if self.into:
                self._close_file()
                self.into.done(Pack(self.path, self.index, end, self.into.base))
                return
            data = pack_foot(self.index, end)
            write_all(self.file, [pack_head()], 0)
            write_all(self.file, [data], end)
            os.ftruncate(self.file, end + len(data))  # an equal file may have ended behind it
            os.fchmod(self.file, 0o644)
            self._close_file()
            self.temporary.replace(self.path)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Stop, and leave nothing behind (in a region: what was written, which its owner knows)."""
        self.blocks.stop()
        self._close_file()
        if not self.into:
            self.temporary.unlink(missing_ok=True)

    def __enter__(self) -> PackWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close() if kind is None else self.discard()

    def _close_file(self) -> None:
        if self.own:
            self.own.close()
        if self.open and not self.into:
            with contextlib.suppress(OSError):
                os.close(self.file)
        self.open = False

    def _xattrs(self, xattrs: Mapping[bytes, bytes]) -> int:
        pairs = tuple(sorted(xattrs.items()))
        number = self.xattr_numbers.setdefault(pairs, len(self.index.xattr_sets))
        if number == len(self.index.xattr_sets):
            self.index.xattr_sets.append(pairs)
        return number

    def _name(self) -> str:
        return repr(os.fsdecode(self.index.paths[self.row])) if self.row >= 0 else "a member"
