"""Entries and names of an open tree (`envbuild.core.rooted_tree`), held by descriptors."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of a tree, held open. `fd`: a descriptor of O_PATH; `is_new`: it was made just now."""

    fd: int
    is_new: bool = False

    @property
    def handle(self) -> Path:
        """A path that leads to the entry, even if its name is changed (proc_pid_fd(5))."""
        return Path(f"/proc/self/fd/{self.fd}")

    @property
    def status(self) -> os.stat_result:
        return os.fstat(self.fd)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


@dataclass(frozen=True, slots=True)
class Slot:
    """A name in a folder of a tree, whether something has it or not. `fd`: a descriptor of the folder; `folder`: its
    path in the tree, with a leading slash."""

    fd: int
    name: str
    folder: str

    @property
    def status(self) -> os.stat_result | None:
        """The entry of the name, of a link the link itself; None if nothing has it."""
        with suppress(FileNotFoundError):
            return os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)
        return None
