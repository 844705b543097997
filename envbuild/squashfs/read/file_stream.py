"""One file of a squashfs image as a binary stream that can seek."""

from __future__ import annotations

import io

from envbuild.squashfs.read.content import FileContent
from envbuild.squashfs.read.decompress import CorruptDataError
from envbuild.squashfs.read.superblock import damaged_image


class FileStream(io.RawIOBase):
    """A file for Python's buffered readers; `name` is that of the image."""

    def __init__(self, content: FileContent, name: str) -> None:
        self.content, self.name, self.at = content, name, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self.at, self.content.size)[whence]
        if base + offset < 0:
            raise ValueError("a position before the beginning")
        self.at = base + offset
        return self.at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            data = self.content.at(self.at)
        except CorruptDataError as error:
            raise damaged_image(self.name, f"a file: {error}") from error
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        self.at += count
        return count
