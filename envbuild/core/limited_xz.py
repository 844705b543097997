"""The content of an .xz or .lzma file, unpacked with a limit of memory: `lzma.LZMAFile` takes what a file requests."""

from __future__ import annotations

import io
import lzma
import os
from typing import IO, Any

XZ_MEMORY = 256 << 20  # xz -9 needs 65 MiB; a header may request 4 GiB
CHUNK = 1 << 16


class LimitedXz(io.RawIOBase):
    """The content of the open `file`, unpacked with at most XZ_MEMORY bytes of memory; `owned`: it is closed with this
    one. Reading it raises LZMAError, EOFError."""

    def __init__(self, file: IO[bytes], *, owned: bool) -> None:
        self.file, self.owned, self.position = file, owned, 0
        self.stream: lzma.LZMADecompressor | None = None

    def close(self) -> None:
        if self.owned:
            self.file.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Continue at a position: from its start again for one that has passed."""
        target = self.position + offset if whence == os.SEEK_CUR else offset
        if whence == os.SEEK_END:
            raise io.UnsupportedOperation("from the end")
        if target < self.position:
            self.file.seek(0)
            self.position, self.stream = 0, None
        while self.position < target and self.read(min(target - self.position, io.DEFAULT_BUFFER_SIZE)):
            pass
        return self.position

    def readinto(self, buffer: Any) -> int:
        content = self._unpack(len(buffer))
        buffer[: len(content)] = content
        self.position += len(content)
        return len(content)

    def _unpack(self, most: int) -> bytes:
        while True:
            stream, needed = self.stream, b""
            if stream is None or stream.eof:
                needed = (stream.unused_data if stream else b"") or self.file.read(CHUNK)
                while stream and needed and not (needed := needed.lstrip(b"\0")):  # the padding of streams
                    needed = self.file.read(CHUNK)
                if not needed:
                    return b""
                self.stream = stream = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
            elif stream.needs_input and not (needed := self.file.read(CHUNK)):
                raise EOFError("the file ends before its end-of-stream marker")
            if content := stream.decompress(needed, most):
                return content
