"""The file that is verified, with bytes that no other user changes meanwhile.

A file that others can write, or exchange on the way to it, is copied first, and the copy is verified: a write by a
shared mapping changes bytes at any time and shows in no time of the inode (mmap(2), "MAP_SHARED"), and a link or a
folder on the way that is exchanged and put back shows nowhere.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from envbuild.core.digest import reported_digest
from envbuild.core.errors import FREE_SOME, EngineError, VerifyError
from envbuild.core.ownership import Intrusion, closed_groups, find_intrusion, find_renamers, own_users
from envbuild.core.regular_file import open_regular
from envbuild.core.text import amount
from envbuild.squashfs.write.copy_extents import copy_data

if TYPE_CHECKING:
    from envbuild.core.store.store import Store
    from envbuild.spec.workspace import Workspace

COPY = "copy"  # a task of the reporter


@dataclass(frozen=True, slots=True)
class PinnedImage:
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
def pin_image(
    path: Path, workspace: Workspace, written: str = "", stamp: tuple[int, int] | None = None
) -> Iterator[PinnedImage]:
    """Yield a squashfs file to verify; check at the end that it is still the same.

    written: the sha256 with which this process has written it; it is not read for that again unless it is copied.
    stamp: size and time (ns) of the file that this process has written.

    Raises VerifyError; EngineError where the store's disk is full; OSError."""
    with private_content(path, workspace) as content:
        identity = file_identity(content)
        same = written and content == path.resolve()
        if same and stamp and stamp != (identity[3], content.stat().st_mtime_ns):
            raise_replaced(path)
        sha256 = written if same else reported_digest(content, workspace.reporter, follow=False)
        pinned = PinnedImage(path, content, sha256, identity)
        yield pinned
        pinned.check()


@contextlib.contextmanager
def private_content(path: Path, workspace: Workspace) -> Iterator[Path]:
    """Yield a file with the content of the file at `path` that no other user changes or exchanges meanwhile: the file
    itself, or a copy in the store.

    Raises EngineError where the store's disk is full, EnvbuildError, OSError."""
    store, reporter = workspace.store, workspace.reporter
    with contextlib.ExitStack() as stack:
        real = path.resolve()
        opened = stack.enter_context(open_regular(real, follow=False))
        intrusion = find_writer(path, real, opened.fileno(), store)
        if not intrusion:
            yield real
            return
        folder = stack.enter_context(store.workdir()) / "copy"  # beside the work folder's own files
        folder.mkdir(mode=0o700)
        copy = folder / path.name
        reporter.info(f"{intrusion.path} {intrusion.reason}: a copy of {path.name} is used")
        check_room(opened.fileno(), store)
        reporter.start(COPY, f"copy {path.name}")
        try:
            with store.filled(), copy.open("xb", buffering=0) as out:
                copy.chmod(0o600)
                copy_data(opened.fileno(), out.fileno())
        finally:
            reporter.finish(COPY)
        yield copy


def find_writer(path: Path, real: Path, file: int, store: Store) -> Intrusion | None:
    """Return how another user can change what is read of the open file, or of its name; None if none can.

    path, real: its name, and that name through no link. Who can replace a store's folder is trusted (docs/security.md),
    so of a file of the store what is above it does not count."""
    users, groups = own_users(), closed_groups
    if found := find_intrusion(f"/proc/self/fd/{file}", users, groups):
        return Intrusion(path, found.reason, found.own)
    if path.parent == store.root / "artifacts" and path == real:
        way = find_intrusion(str(path.parent), users, groups)
    else:
        way = next(find_renamers(str(path), users, groups, strict=True), None)
    if way:
        return way
    try:
        same = os.path.samestat(os.fstat(file), real.lstat())
    except OSError:
        same = False
    return None if same else Intrusion(path, "was exchanged at this moment", False)


def check_room(file: int, store: Store) -> None:
    """Raise EngineError if the store's disk has no room for a copy of an open file."""
    needed, free = os.fstat(file).st_blocks * 512, shutil.disk_usage(store.tmp).free
    if needed > free:
        raise EngineError(
            f"the store {store.root} has {amount(free)} free, and a copy of the file takes {amount(needed)}",
            hint=FREE_SOME,
        )


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
