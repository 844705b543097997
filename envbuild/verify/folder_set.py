"""Folders that a report names, and the search of the one that contains a path: an image decides how many there are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class FolderSet:
    """Folders; of those within each other the outermost."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders: list[str] = []  # each with a slash at its end, in order, none the beginning of another
        for folder in sorted(f"{folder}/" for folder in folders):
            if not self.folders or not folder.startswith(self.folders[-1]):
                self.folders.append(folder)

    def find(self, path: str) -> str:
        """Return the folder that contains `path`, with a slash at its end; "" if none does."""
        at = bisect_right(self.folders, path) - 1  # the beginning of a path is the last one in order before it
        return self.folders[at] if at >= 0 and path.startswith(self.folders[at]) else ""
