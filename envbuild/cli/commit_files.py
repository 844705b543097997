"""The files of a commit in a temporary folder, for ``list --changed``, with the limits of a source's commit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from envbuild.core.bombs import UnpackedFiles
from envbuild.core.errors import SpecError
from envbuild.core.text import amount
from envbuild.lock.git.git_program import ObjectReader, blob_sizes
from envbuild.lock.git.tarball import LONGEST
from envbuild.lock.git.tree import KIND, LINK, TreeEntry, walk_tree
from envbuild.net.failures import NotFoundError, RefusedError

MOST = 1 << 30  # bytes of the files of a project


def write_files(repository: Path, tree: str, commit: str, folder: Path) -> None:
    """Write the files of a tree into an empty folder, without submodules.

    Raises SpecError, also for more files than their objects account for, and InputError for a tree with files that no
    checkout has.
    """
    try:
        with ObjectReader(repository) as objects:
            entries = [entry for entry in walk_tree(objects, tree, commit) if entry.mode & KIND != LINK]
            _check_size(repository, entries)
            for entry in entries:
                _write_file(objects, entry, folder / os.fsdecode(entry.path))
    except (NotFoundError, RefusedError, OSError, ValueError) as error:
        raise SpecError(f"the files of the commit cannot be read: {error}", hint="git fsck") from None


def _check_size(repository: Path, entries: Sequence[TreeEntry]) -> None:
    """Raise ValueError if the files are too long together, or for the objects that hold them: one object may be many
    files, and a small one a large file. Raise NotFoundError if one is not in the repository."""
    sizes = blob_sizes(repository, {entry.sha for entry in entries})
    if missing := next((entry for entry in entries if entry.sha not in sizes), None):
        raise NotFoundError(f"it lacks the blob {missing.sha}")
    if (total := sum(sizes[entry.sha].size for entry in entries)) > MOST:
        raise ValueError(f"they have {amount(total)}; at most {amount(MOST)} are read")
    files = UnpackedFiles(sum(size.stored for size in sizes.values()))
    for entry in entries:
        files.add(sizes[entry.sha].size, os.fsdecode(entry.path))


def _write_file(objects: ObjectReader, entry: TreeEntry, path: Path) -> None:
    """Write one file or symlink, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry.symlink:
        path.symlink_to(os.fsdecode(objects.read(entry.sha, "blob", LONGEST)))
        return
    with path.open("xb") as file:
        objects.copy(entry.sha, "blob", file.write, MOST)
    path.chmod(entry.mode & 0o755)
