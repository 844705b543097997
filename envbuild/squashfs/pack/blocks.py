"""Blocks of a pack: compressed in threads, written in the order of the layer, each file's data once.

The bytes do not depend on the number of threads: batches are taken in the order in which they were given. A file whose
stored blocks are those of an earlier file of the layer is found when its last block is written (equal lengths, size
words and checksum, then equal bytes), and what was written for it is taken back.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future

from envbuild.squashfs.codec import crc32
from envbuild.squashfs.pack.append_file import MAX_BUFFERS, Appender, Buffer
from envbuild.squashfs.pack.file import DATA
from envbuild.squashfs.pack.index import FRAGMENT_COLUMNS, RAW, PackIndex
from envbuild.squashfs.pack.workers import Workers

BATCH = 1 << 20  # bytes handed to a thread at once: smaller batches cost switching, larger ones memory
SLOW_BATCH = 1 << 18  # where that switching is nothing beside the work: four times the threads for the same memory

InputBlock = tuple[
    int, Buffer | int
]  # (row of a file, or ~number of a fragment block; content, or a number of zero blocks)
StoredBlock = tuple[int, Buffer, int]  # (row or ~number; bytes to store; size word, or 0 and the block is zeros)


class BlockWriter:
    """Data of one pack, from position DATA on in the open `file` whose byte `base` is the pack's position 0."""

    def __init__(self, file: int, base: int, index: PackIndex, workers: Workers) -> None:
        self.file, self.base, self.index = Appender(file), base, index
        self.position = DATA
        self.workers, self.working = workers, True
        self.most = SLOW_BATCH if index.codec.slow else BATCH
        workers.join()
        self.pending: deque[Future[list[StoredBlock]]] = deque()
        self.batch: list[InputBlock] = []
        self.batch_size = 0
        self.zero = memoryview(bytes(index.block))
        self.flying: dict[int, Buffer] = {}  # fragment blocks that are not written yet
        self.out: list[Buffer] = []
        self.out_size = 0
        self.row = -1  # file whose blocks are being written
        self.crc = 0
        self.files: dict[tuple[int, int], int] = {}  # (stored length, checksum) → row

    def add(self, row: int, content: Buffer) -> None:
        """Add the next whole block of a file."""
        self._submit(row, content, len(content))

    def add_zeros(self, row: int, count: int) -> None:
        """Add `count` blocks of zeros, the next ones of a file."""
        self._submit(row, count, 64)  # no memory, but not free either

    def new_fragment(self) -> int:
        """Return the number of a fragment block that will be added."""
        columns = self.index.columns
        for name in FRAGMENT_COLUMNS:
            columns[name].append(0)
        return len(columns["fragment_sizes"]) - 1

    def add_fragment(self, number: int, content: bytes) -> None:
        """Add the fragment block `number`."""
        self.index.columns["fragment_sizes"][number] = len(content)
        self.flying[number] = content
        self._submit(~number, content, len(content))

    def fragment(self, number: int) -> Buffer:
        """Return the content of a fragment block that was added."""
        flying = self.flying.get(number)
        if flying is not None:
            return flying
        self._flush()
        columns = self.index.columns
        word = columns["fragment_words"][number]
        stored = self._read(columns["fragment_starts"][number], word & ~RAW)
        return stored if word & RAW else self.index.codec.decompress(stored, columns["fragment_sizes"][number])

    def finish(self) -> int:
        """Write everything; returns the position where the data ends."""
        self._send()
        while self.pending:
            self._take()
        self._end_file()
        self._flush()
        self.file.flush()
        self._leave()
        return self.position

    def stop(self) -> None:
        """Stop. A batch that a thread has started may still end; it writes nothing."""
        for future in self.pending:
            future.cancel()
        self.pending.clear()
        self._leave()

    def _leave(self) -> None:
        if self.working:
            self.working = False
            self.workers.leave()
            self.file.close()

    def _submit(self, owner: int, content: Buffer | int, size: int) -> None:
        self.batch.append((owner, content))
        self.batch_size += size
        if self.batch_size >= self.most:
            self._send()

    def _send(self) -> None:
        if self.batch:
            self.pending.append(self.workers.submit(self._compress, self.batch))
            self.batch, self.batch_size = [], 0
        while len(self.pending) > self.workers.ahead(self.most):
            self._take()

    def _compress(self, batch: list[InputBlock]) -> list[StoredBlock]:
        """Return what to store of each block; runs in a thread."""
        compress, zero = self.index.codec.compressor(), self.zero
        result: list[StoredBlock] = []
        for owner, content in batch:
            if isinstance(content, int):
                result.append((owner, b"", content))
                continue
            if owner >= 0 and content[0] == 0 and content[-1] == 0 and bytes(content) == zero[: len(content)]:
                result.append((owner, b"", 1))
                continue
            packed = compress(content)
            if len(packed) < len(content):
                result.append((owner, packed, len(packed)))
            else:
                result.append((owner, content, len(content) | RAW))
        return result

    def _take(self) -> None:
        """Take the oldest batch, write its blocks and enter them into the index."""
        columns = self.index.columns
        words, stored = columns["words"], columns["stored"]
        for owner, content, word in self.pending.popleft().result():
            length = len(content)
            if owner < 0:
                self._end_file()
                number = ~owner
                columns["fragment_starts"][number], columns["fragment_words"][number] = self.position, word
                columns["fragment_crcs"][number] = crc32(content)
                del self.flying[number]
            else:
                if owner != self.row:
                    self._end_file()
                    self.row, self.crc = owner, 0
                    columns["first"][owner], columns["starts"][owner] = len(words), self.position
                if not length:  # `word` blocks of zeros
                    words.frombytes(bytes(4 * word))
                    columns["sparse"][owner] += word * self.index.block
                    continue
                words.append(word)
                stored[owner] += length
                self.crc = crc32(content, self.crc)
            self.out.append(content)
            self.out_size += length
            self.position += length
            if self.out_size >= BATCH or len(self.out) >= MAX_BUFFERS:
                self._flush()

    def _end_file(self) -> None:
        """End a file whose blocks are all written: keep them, or use those of an equal file."""
        row, self.row = self.row, -1
        columns = self.index.columns
        if row < 0 or not columns["stored"][row]:
            return
        columns["crcs"][row] = self.crc
        length, start, first = columns["stored"][row], columns["starts"][row], columns["first"][row]
        words = columns["words"]
        other = self.files.setdefault((length, self.crc), row)
        if other == row:
            return
        there, before = columns["starts"][other], columns["first"][other]
        if words[before : before + len(words) - first] == words[first:] and self._equal(there, start, length):
            columns["starts"][row], columns["first"][row] = there, before
            self.position = start
            del words[first:]

    def _equal(self, one: int, other: int, length: int) -> bool:
        self._flush()
        for at in range(0, length, BATCH):
            size = min(BATCH, length - at)
            if self._read(one + at, size) != self._read(other + at, size):
                return False
        return True

    def _read(self, at: int, length: int) -> bytes:
        return self.file.read(self.base + at, length)

    def _flush(self) -> None:
        self.file.write(self.out, self.base + self.position - self.out_size)
        self.out, self.out_size = [], 0
