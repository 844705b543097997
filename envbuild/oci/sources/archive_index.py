"""Index of the files of an archive: the position of each, so that they can be read in any order."""

from __future__ import annotations

import contextlib
import io
import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from envbuild.core.errors import InputError
from envbuild.oci.document import MAX_DOCUMENT

MAX_PATH = 4096  # characters of a name (PATH_MAX)
HOPS = 8  # links from one name of an archive to the next
HINT = "write it with docker save -o FILE NAME, podman save, or skopeo copy"


class FileSection(io.RawIOBase):
    """File of the bytes `start` to `start` + `size` of a file."""

    def __init__(self, path: Path, start: int, size: int) -> None:
        self.file, self.left = path.open("rb", buffering=0), size
        self.file.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.file.readinto(memoryview(buffer)[: self.left]) or 0
        self.left -= count
        return count

    def close(self) -> None:
        self.file.close()
        super().close()


def plain_path(name: str) -> str:
    """Return a name as `ArchiveIndex` has it: Docker takes an absolute one from the top of the archive, too."""
    return posixpath.normpath(name).lstrip("/")


@dataclass(slots=True)
class ArchiveIndex:
    """Files of an archive by name. `places`: (start, size); `links`: name → what it is another name of;
    `contents`: documents, of an archive that can be read only once (`packed`): a compressed one."""

    path: Path
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    packed: bool = False

    def add(self, entry: tarfile.TarInfo) -> str:
        """Enter an entry; returns its name. Raises InputError for a second file of one name: programs differ in which
        of both they take."""
        if len(entry.name) > MAX_PATH:  # no program can make such a file
            raise InputError(f"{self.path} contains a name of {len(entry.name)} characters", hint=HINT)
        name = plain_path(entry.name)
        if entry.isdir():
            return name
        if name in self.places or name in self.links:
            raise InputError(f"{self.path} contains two files called {name[:200]!r}", hint=HINT)
        if not (entry.isreg() or entry.issym() or entry.islnk()):  # for Go, an unknown type is a regular file
            raise InputError(f"{self.path} contains {name[:200]!r}, which is a special file", hint=HINT)
        if entry.issym() or entry.islnk():  # `docker save` and podman write a layer that occurs twice so
            above = posixpath.dirname(name) if entry.issym() else ""
            self.links[name] = posixpath.normpath(posixpath.join(above, entry.linkname))
        else:
            self.places[name] = entry.offset_data, entry.size
        return name

    def check_folders(self) -> None:
        """Raise InputError for a file in a folder that is a link: Docker writes it where that leads."""
        for name in (*self.places, *self.links) if self.links else ():
            above = posixpath.dirname(name)
            while above:
                if above in self.links:
                    raise InputError(f"{self.path} contains {name[:200]!r}, and {above[:200]!r} is a link", hint=HINT)
                above = posixpath.dirname(above)

    def real(self, name: str) -> str:
        """Return the name of the file that `name` is, links followed. Raises InputError."""
        real = plain_path(name)
        for _ in range(HOPS):
            if real not in self.links:
                break
            real = self.links[real]
        if real not in self.places:
            raise InputError(f"{self.path} is an incomplete archive, because {name[:200]!r} is not in it", hint=HINT)
        return real

    def size(self, name: str) -> int:
        return self.places[self.real(name)][1]

    def read(self, name: str) -> bytes:
        real = self.real(name)
        if self.packed:
            return self.contents.get(real, b"")
        with self.open(name) as file:
            return file.read(MAX_DOCUMENT + 1)

    def open(self, name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        return cast(
            "contextlib.AbstractContextManager[IO[bytes]]", FileSection(self.path, *self.places[self.real(name)])
        )


@contextlib.contextmanager
def convert_archive_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading an archive into an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint=HINT) from None
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is not an archive of an image: {error}", hint=HINT) from None
