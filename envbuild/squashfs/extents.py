"""Which bytes of the packs go into an image, and where.

What lives is copied in the order of the packs, neighbours in one piece; what was deleted or replaced is left out to
the byte. A fragment block whose tails all live is copied too. One that also holds dead tails is unpacked, and its
living tails are packed anew into blocks after the copied data, so that nothing that a layer deleted stays in the
published file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from envbuild.errors import EnvbuildError
from envbuild.squashfs.codec import Codec
from envbuild.squashfs.index import NONE, RAW, Pack

NO_KERNEL_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)

Slot = tuple[int, int, int]  # (pack, fragment, offset)


@dataclass(slots=True)
class Plan:
    """Where everything goes. `ranges`: (pack, position there, length, position here), `starts`: per pack, row →
    position here.

    `fragments` are (position, size word) of the image's fragment blocks; `kept` maps (pack, fragment) to a block
    copied as it is and `moved` a slot to (block, offset). `repacked` are the bytes of the new blocks, which begin at
    `copied_end`.
    """

    ranges: list[tuple[int, int, int, int]] = field(default_factory=list)
    starts: list[dict[int, int]] = field(default_factory=list)
    fragments: list[tuple[int, int]] = field(default_factory=list)
    kept: dict[tuple[int, int], int] = field(default_factory=dict)
    moved: dict[Slot, tuple[int, int]] = field(default_factory=dict)
    repacked: list[bytes] = field(default_factory=list)
    copied_end: int = 0

    @property
    def end(self) -> int:
        return self.copied_end + sum(len(block) for block in self.repacked)

    def tail(self, pack: int, fragment: int, offset: int) -> tuple[int, int]:
        """(fragment block, offset) in the image of a tail of a pack."""
        kept = self.kept.get((pack, fragment))
        return (kept, offset) if kept is not None else self.moved[pack, fragment, offset]


def plan(packs: Sequence[Pack], live: Sequence[Iterable[int]], start: int, codec: Codec) -> Plan:
    """Plan the data of an image whose living rows are `live` (per pack), from position `start` on."""
    result = Plan()
    position = start
    dirty: list[tuple[int, int, dict[int, int]]] = []
    for number, (pack, rows) in enumerate(zip(packs, live, strict=True)):
        columns, block = pack.index.columns, pack.index.block
        starts, stored, fragments = columns["starts"], columns["stored"], columns["fragments"]
        slots: dict[int, dict[int, int]] = {}  # fragment → offset → length
        pieces: list[tuple[int, int, int, bool]] = []  # (position, length, row or fragment, is a file)
        for row in rows:
            if stored[row]:
                pieces.append((starts[row], stored[row], row, True))
            if fragments[row] != NONE:
                slots.setdefault(fragments[row], {})[columns["offsets"][row]] = columns["sizes"][row] % block
        for fragment, tails in slots.items():
            if sum(tails.values()) == columns["fragment_sizes"][fragment]:
                length = columns["fragment_words"][fragment] & ~RAW
                pieces.append((columns["fragment_starts"][fragment], length, fragment, False))
            else:
                dirty.append((number, fragment, tails))
        pieces.sort()
        places: dict[int, int] = {}
        run = (0, 0, 0)  # position in the pack, length, position here
        for at, length, owner, is_file in pieces:
            if is_file:
                places[owner] = position
            else:
                result.kept[number, owner] = len(result.fragments)
                result.fragments.append((position, columns["fragment_words"][owner]))
            if run[1] and run[0] + run[1] == at:
                run = (run[0], run[1] + length, run[2])
            else:
                if run[1]:
                    result.ranges.append((number, *run))
                run = (at, length, position)
            position += length
        if run[1]:
            result.ranges.append((number, *run))
        result.starts.append(places)
    result.copied_end = position
    repack(packs, sorted(dirty, key=lambda item: item[:2]), result, codec)
    return result


def repack(packs: Sequence[Pack], dirty: Sequence[tuple[int, int, dict[int, int]]], result: Plan, codec: Codec) -> None:
    """Pack the living tails of `dirty` fragment blocks (pack, fragment, offset → length) anew, in their order."""
    buffer = bytearray()
    position = result.copied_end

    def flush() -> None:
        nonlocal position
        packed = codec.compress(bytes(buffer))
        raw = len(packed) >= len(buffer)
        stored = bytes(buffer) if raw else packed
        result.fragments.append((position, len(stored) | RAW if raw else len(stored)))
        result.repacked.append(stored)
        position += len(stored)
        buffer.clear()

    for number, fragment, tails in dirty:
        content = read_fragment(packs[number], fragment)
        for offset in sorted(tails):
            tail = content[offset : offset + tails[offset]]
            if len(buffer) + len(tail) > packs[number].index.block:
                flush()
            result.moved[number, fragment, offset] = len(result.fragments), len(buffer)
            buffer += tail
    if buffer:
        flush()


def read_fragment(pack: Pack, fragment: int) -> bytes:
    """The content of a fragment block of a pack. Raises EnvbuildError when it is damaged."""
    columns = pack.index.columns
    word, size = columns["fragment_words"][fragment], columns["fragment_sizes"][fragment]
    with pack.path.open("rb") as file:
        file.seek(columns["fragment_starts"][fragment])
        stored = file.read(word & ~RAW)
    content = stored if word & RAW else pack.index.codec.decompress(stored, size)
    if len(content) != size:
        raise EnvbuildError("a fragment block of a pack is damaged", hint=f"rm '{pack.path}'", where=str(pack.path))
    return content


def copy(packs: Sequence[Pack], ranges: Iterable[tuple[int, int, int, int]], out: int) -> None:
    """Copy `ranges` (see Plan) into the file descriptor `out`, in the kernel where it can."""
    sources: dict[int, int] = {}
    try:
        for number, at, length, to in ranges:
            if number not in sources:
                sources[number] = os.open(packs[number].path, os.O_RDONLY | os.O_CLOEXEC)
            if not copy_range(sources[number], at, out, to, length):
                raise EnvbuildError(
                    "a pack is cut short", hint=f"rm '{packs[number].path}'", where=str(packs[number].path)
                )
    finally:
        for source in sources.values():
            os.close(source)


def copy_range(source: int, at: int, out: int, to: int, length: int) -> bool:
    """Copy `length` bytes between descriptors; False when the source ends before."""
    in_kernel = True
    while length:
        if in_kernel:
            try:
                done = os.copy_file_range(source, out, length, at, to)
            except OSError as error:
                if error.errno not in NO_KERNEL_COPY:
                    raise
                in_kernel = False  # other file system, or one that cannot
                continue
            if not done and os.fstat(source).st_size >= at + length:
                in_kernel = False  # some kernels answer 0 for file systems without the call
                continue
        else:
            chunk = os.pread(source, min(length, 1 << 20), at)
            done = 0
            while done < len(chunk):
                done += os.pwrite(out, chunk[done:], to + done)
        if not done:
            return False
        at, to, length = at + done, to + done, length - done
    return True
