"""The content of a squashfs image in figures: bytes by folder, the largest files, the Python distributions."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Collection, Iterable

from envbuild.core.errors import VerifyError
from envbuild.squashfs.read.inode import DIRECTORY, KINDS, REGULAR
from envbuild.squashfs.read.tree import Entry
from envbuild.verify.contents.metadata import group_versions, normalize_name

PACKAGES = re.compile(rb"(.*/(?:site|dist)-packages/(?:nvidia/)?[^/]+)/.")  # nvidia: one name of many wheels
DISTRIBUTION = re.compile(rb"(?:site|dist)-packages/([^/]+?)-([^/-]+)(?:-py\d[\d.]*)?\.(?:dist|egg)-info\Z")
LARGEST = 20
MOST = 100_000  # distributions, and folders that are counted apart


class SizeSummary:
    """Sums of entries of the image `where`. `folders`: folder → bytes of its files, each inode counted once; after
    `MOST` of them the others count to the image's root."""

    def __init__(self, where: str = "") -> None:
        self.where = where
        self.kinds: Counter[str] = Counter()
        self.folders: Counter[bytes] = Counter()
        self.unpacked = 0
        self._largest: list[tuple[int, bytes]] = []
        self._found: set[tuple[str, str]] = set()
        self._linked: set[int] = set()

    def add(self, entry: Entry) -> None:
        """Count an entry; a further name of an inode counts as a hard link. Raises VerifyError for more than `MOST`
        distributions."""
        path, inode = entry
        if path.endswith(b"-info") and (found := DISTRIBUTION.search(path)):
            name, version = (part.decode(errors="replace") for part in found.groups())
            self._found.add((normalize_name(name), version))
            if len(self._found) > MOST:
                raise VerifyError(f"the image has more than {MOST:,} Python distributions", where=self.where)
        if inode.links > 1 and inode.kind != DIRECTORY:
            if inode.reference in self._linked:
                self.kinds["hard link"] += 1
                return
            self._linked.add(inode.reference)
        self.kinds[KINDS[inode.kind]] += 1
        if inode.kind == REGULAR:
            self.unpacked += inode.size
            self.folders[known_folder(path, self.folders)] += inode.size
            item = (inode.size, path)
            if len(self._largest) < LARGEST:
                heapq.heappush(self._largest, item)
            elif item > self._largest[0]:
                heapq.heapreplace(self._largest, item)

    def add_all(self, entries: Iterable[Entry]) -> SizeSummary:
        for entry in entries:
            self.add(entry)
        return self

    @property
    def largest(self) -> list[tuple[bytes, int]]:
        """The largest files, the largest first."""
        return [(path, size) for size, path in sorted(self._largest, key=lambda item: (-item[0], item[1]))]

    @property
    def python(self) -> dict[str, str]:
        """Distributions that have a folder of metadata: name → version."""
        return group_versions(self._found)


def counted_folder(path: bytes) -> bytes:
    """Return the folder that a file counts to: a Python package's own, else the first two of its path (``opt/ucx``)."""
    if b"-packages/" in path and (found := PACKAGES.match(path)):
        return found[1]
    parts = path.split(b"/", 2)
    return b"/".join(parts[:2]) if len(parts) > 2 else parts[0] if len(parts) > 1 else b""


def known_folder(path: bytes, folders: Collection[bytes]) -> bytes:
    """Return the folder that a file counts to, among `folders` so far: the root when those are `MOST`."""
    folder = counted_folder(path)
    return folder if len(folders) < MOST or folder in folders else b""
