"""The tarball of a commit: the same bytes on every machine and with every version of git.

``git archive`` is not used: its output follows attributes, configuration and the version of git. Here every byte
follows from the commits: members in byte order below one folder, root's, with fixed modes and one fixed time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from envbuild.core.bounded_tar import BoundedTarFile
from envbuild.core.errors import InputError
from envbuild.core.fixed_time import TIME
from envbuild.core.regular_file import PinnedFile
from envbuild.core.text import printable
from envbuild.lock.git.git_program import LIMIT, ObjectReader
from envbuild.lock.git.source_limits import check_size
from envbuild.lock.git.tree import CommitTree, TreeEntry
from envbuild.oci.tar.member import Kind, Member
from envbuild.oci.tar.writer import TarSink

# What a large file's content is replaced with (Git LFS specification, "The Pointer"): at most 1024 bytes.
LONGEST = 4096  # bytes of the target of a symlink, as in Linux
POINTER, POINTER_SIZE = b"version https://git-lfs.github.com/spec/v1\n", 1024


@dataclass(frozen=True, slots=True)
class Tarball:
    """A tarball that was written: `pointers` are the files whose content is stored elsewhere (Git LFS)."""

    sha256: str
    size: int
    pointers: tuple[str, ...]


def write_tar(top: str, trees: Mapping[str, CommitTree], file: IO[bytes]) -> Tarball:
    """Write the commits `trees` (by their path below the folder `top`) as one tarball; a submodule that is not among
    them is an empty folder, as in a clone.

    Raises NotFoundError, RefusedError if a repository lacks objects that it listed, and InputError, also for more
    bytes than a source may have.
    """
    check_size(trees)
    end = time.monotonic() + LIMIT
    sink, pointers = TarSink(file), []
    with contextlib.ExitStack() as stack:
        readers: dict[Path, ObjectReader] = {}
        for path, item in sorted(_list_members(top, trees).items()):
            if item is None:
                sink.begin(Member(path, Kind.DIR, 0o755, mtime=TIME))
                sink.end()
                continue
            tree, entry = item
            if tree.folder not in readers:
                readers[tree.folder] = stack.enter_context(ObjectReader(tree.folder, end))
            if _write_entry(sink, path, entry, readers[tree.folder], tree):
                pointers.append(path.partition(b"/")[2].decode(errors="replace"))
    sink.close()
    return Tarball(sink.sha256, sink.size, tuple(pointers))


def _list_members(top: str, trees: Mapping[str, CommitTree]) -> dict[bytes, tuple[CommitTree, TreeEntry] | None]:
    """Return path → file or symlink, or None for a folder."""
    items: dict[bytes, tuple[CommitTree, TreeEntry] | None] = {top.encode(): None}
    for path, tree in trees.items():
        root = f"{top}/{path}".rstrip("/").encode()
        items |= {root + b"/" + entry.path: (tree, entry) for entry in tree.files}
        for link in tree.gitlinks:
            items.setdefault(root + b"/" + link)
    for full in list(items):
        while (full := full.rpartition(b"/")[0]) and full not in items:
            items[full] = None
    return items


def _write_entry(sink: TarSink, path: bytes, entry: TreeEntry, objects: ObjectReader, tree: CommitTree) -> bool:
    """Write one file or symlink. Return whether it is a pointer to content that is stored elsewhere."""
    if entry.symlink:
        link = objects.read(entry.sha, "blob", LONGEST)
        if not link or b"\0" in link:
            raise InputError(
                f"the commit {tree.origin}@{tree.commit} contains a symbolic link without a valid target: "
                f"{printable(entry.path.decode(errors='replace'))}"
            )
        sink.begin(Member(path, Kind.SYMLINK, 0o777, mtime=TIME, link=link))
        sink.end()
        return False
    mode = 0o755 if entry.executable else 0o644
    sink.begin(Member(path, Kind.FILE, mode, mtime=TIME, size=entry.size))
    if entry.size > POINTER_SIZE:
        objects.copy(entry.sha, "blob", sink.data)
        content = b""
    else:
        content = objects.read(entry.sha, "blob")
        sink.data(content)
    sink.end()
    return content.startswith(POINTER)


def empty_folders(tarball: PinnedFile) -> list[str]:
    """Return the empty folders of a tarball of this module: the submodules that were left out."""
    folders: set[str] = set()
    filled: set[str] = set()
    with BoundedTarFile.open(tarball.path, "r:") as tar:
        for member in tar:
            filled.add(member.name.rpartition("/")[0])
            if member.isdir():
                folders.add(member.name)
    return sorted(folders - filled)
