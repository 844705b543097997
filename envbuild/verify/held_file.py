"""The file that is verified, with bytes that no other user changes meanwhile.

A file that others can write, or exchange on the way to it, is copied first, and the copy is verified: a write by a
shared mapping changes bytes at any time and shows in no time of the inode (mmap(2), "MAP_SHARED"), and a link or a
folder on the way that is exchanged and put back shows nowhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from envbuild.core.digest import reported_digest
from envbuild.core.errors import VerifyError
from envbuild.core.ownership import Intrusion, find_intrusion, find_renamers, own_users, private_groups

if TYPE_CHECKING:
    from envbuild.core.store.store import Store
    from envbuild.spec.workspace import Workspace

COPY = "copy"  # a task of the reporter


@dataclass(frozen=True, slots=True)
class HeldFile:
    """`path`: the file, as the user calls it; `content`: where its bytes are read; `sha256`: that of these bytes."""

    path: Path
    content: Path
    sha256: str
    identity: tuple[int, int, int, int]

    def check(self) -> None:
        """Raise VerifyError if the content is not the one that was digested."""
        if file_identity(self.content) != self.identity:
            raise_replaced(self.path)


@contextlib.contextmanager
def hold_file(path: Path, workspace: Workspace, written: str = "") -> Iterator[HeldFile]:
    """Yield a squashfs file to verify; check at the end that it is still the same.

    written: the sha256 with which this process has written it; it is not read for that again unless it is copied.

    Raises VerifyError; EngineError where the store's disk is full; OSError."""
    store, reporter = workspace.store, workspace.reporter
    with contextlib.ExitStack() as stack:
        content = path.resolve()
        if intrusion := find_writer(path, store):
            written = ""
            copy = stack.enter_context(store.workdir()) / path.name
            reporter.info(f"{intrusion.path} {intrusion.reason}: a copy of {path.name} is verified")
            reporter.start(COPY, f"copy {path.name}")
            try:
                with store.filled():
                    copy_whole(content, copy)
            finally:
                reporter.finish(COPY)
            content = copy
        identity = file_identity(content)
        sha256 = written or reported_digest(content, reporter, follow=False)
        held = HeldFile(path, content, sha256, identity)
        yield held
        held.check()


def find_writer(path: Path, store: Store) -> Intrusion | None:
    """Return how another user can change what is read at `path`; None if none can. Who can replace a store's folder is
    trusted (docs/security.md), so of a file of the store what is above it does not count."""
    users, groups = own_users(), private_groups()
    if path.parent == store.root / "artifacts" and not path.is_symlink():
        way = find_intrusion(str(path.parent), users, groups)
    else:  # a path of which a part is missing at this moment is judged as far as it goes
        way = next(find_renamers(str(path), users, groups), None)
    return way or find_intrusion(str(path), users, groups)


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file to a new one of this user alone; share its blocks where the file system can. Raises OSError."""
    from envbuild.squashfs.write.copy_extents import copy_file

    with target.open("xb", buffering=0) as out:
        target.chmod(0o600)
        copy_file(source, out.fileno())


def raise_replaced(path: Path) -> NoReturn:
    """Raise the VerifyError of a file that is not the one that was digested."""
    raise VerifyError(
        "another process replaced or changed the file while it was verified",
        hint="run the command again, or with a store of your own: ENVBUILD_STORE=/a/folder/of/yours",
        where=str(path),
    )


def file_identity(path: Path) -> tuple[int, int, int, int]:
    """Return what changes when a file is exchanged, and after most writes to it (inode(7))."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size
