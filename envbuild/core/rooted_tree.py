"""A folder of this machine as the root of its own paths, as a container sees it.

The tree may come from an untrusted source, and other processes may change it meanwhile: no link, no ``..`` and no
exchange of a folder leads out of it. The kernel guarantees that where it has openat2(2); elsewhere each part of a path
is opened by itself, relative to the folder before it. What is found is held by a descriptor, and used through it: a
path is never resolved twice.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from envbuild.core.link_walk import OPEN_FILE, LeavesRootError, LinkCycleError, Place, Step, walk
from envbuild.core.tree_entry import Entry, Slot
from envbuild.core.userns import file_calls

LONGEST = 4095  # bytes of a path (PATH_MAX, with the NUL)
# Errors for which a path is at fault, not the machine.
PATH_ERRORS = frozenset({
    errno.ELOOP, errno.EXDEV, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EMFILE,
    errno.EMLINK,
})  # fmt: skip
HANDLE = os.O_PATH | os.O_CLOEXEC
ENTRY = HANDLE | os.O_NOFOLLOW


class RootedTree:
    """An open folder whose paths begin at it; `close` releases it. Every method raises OSError; LinkCycleError (ELOOP)
    for a path through too many links.

    beneath: a link or ``..`` that would lead out of the folder, if it were not the root, raises LeavesRootError.
    """

    def __init__(self, root: Path, *, beneath: bool = False) -> None:
        """Open the folder `root`."""
        self.root, self.beneath = root, beneath
        self.fd = os.open(root, HANDLE | os.O_DIRECTORY)

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def open(self, path: str) -> Iterator[Entry]:
        """Yield what is at `path`, links followed inside of the tree."""
        fd = self._open(path)
        try:
            yield Entry(fd)
        finally:
            os.close(fd)

    def find(self, path: str) -> os.stat_result | None:
        """Return the status of what is at `path`, links followed; None if there is nothing."""
        try:
            with self.open(path) as entry:
                return entry.status
        except (FileNotFoundError, NotADirectoryError):
            return None

    @contextmanager
    def open_folder(self, path: str, mode: int = 0o777) -> Iterator[Entry]:
        """Yield the folder at `path`; it and missing folders above it are made, with `mode` less the umask."""
        with self._walk(path, make=mode) as place:
            entry = Entry(place.node.fd, place.node.is_new)
            if not entry.is_folder:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            yield entry

    @contextmanager
    def open_file(self, path: str) -> Iterator[Entry]:
        """Yield the file at `path`, of any kind; it is made empty if it is missing, as are folders above it."""
        with self.open_slot(path, follow=True) as slot:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            is_new = slot.status is None
            with _name_errors(path):
                if is_new:
                    os.close(os.open(slot.name, flags, 0o666, dir_fd=slot.fd))
                fd = os.open(slot.name, ENTRY, dir_fd=slot.fd)
            try:
                yield Entry(fd, is_new)
            finally:
                os.close(fd)

    @contextmanager
    def open_slot(self, path: str, *, follow: bool = False, make: int | None = 0o777) -> Iterator[Slot]:
        """Yield the folder in which the last name of `path` is, or would be, and that name. Of the root it is ".".

        follow: follow a link that has the name, too, to the name that it leads to.
        make: the mode of missing folders on the way; None: FileNotFoundError.
        """
        with self._walk(path, make=make, follow=follow, keep_last=True) as place:
            if place.missing:
                yield Slot(place.node.fd, os.fsdecode(place.missing), _text(place))
            elif place.names:
                above = Place(place.nodes[:-1], place.names[:-1])
                yield Slot(above.node.fd, os.fsdecode(place.names[-1]), _text(above))
            else:
                yield Slot(place.node.fd, ".", "/")

    def leads_out(self, path: str) -> bool:
        """Return whether `path` leads out of the folder if that is not the root; missing parts count as folders."""

        def enter(folder: _Node | None, name: bytes, last: bool) -> Step[_Node | None]:
            with suppress(OSError):
                if folder is not None:
                    found = _enter(folder, name, opened)
                    return Step(found.node, found.target, found.is_folder)
            return Step(None, is_folder=True)

        start: Place[_Node | None] = Place((_Node(self.fd),))
        with ExitStack() as opened, suppress(LinkCycleError):  # that leads nowhere
            try:
                walk(start, os.fsencode(path), enter, beneath=True)
            except LeavesRootError:
                return True
        return False

    def _open(self, path: str) -> int:
        """Return a descriptor of what is at `path`."""
        if path.strip("/") and "\0" not in path:
            rule = file_calls.RESOLVE_BENEATH if self.beneath else file_calls.RESOLVE_IN_ROOT
            # an old kernel, a filter of system calls, or an error: that one is reported by the walk below
            with suppress(OSError):
                return file_calls.openat2(self.fd, path, HANDLE, rule | file_calls.RESOLVE_NO_MAGICLINKS)
        with self._walk(path) as place:
            return os.dup(place.node.fd)

    @contextmanager
    def _walk(
        self, path: str, *, make: int | None = None, follow: bool = True, keep_last: bool = False
    ) -> Iterator[Place[_Node]]:
        """Yield the place that `path` leads to; without `keep_last`, its last part must exist, or is made."""
        if "\0" in path:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        if len(os.fsencode(path)) > LONGEST:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        with ExitStack() as opened:

            def enter(folder: _Node, name: bytes, last: bool) -> Step[_Node] | None:
                try:
                    return _enter(folder, name, opened)
                except FileNotFoundError:
                    if last and (keep_last or make is None):
                        return None
                    if make is None:
                        raise
                is_new = True
                try:
                    os.mkdir(name, make, dir_fd=folder.fd)
                except FileExistsError:  # another process was faster
                    is_new = False
                return _enter(folder, name, opened, is_new)

            start = Place((_Node(self.fd),))
            with _name_errors(path):
                place = walk(start, os.fsencode(path), enter, follow=follow, beneath=self.beneath)
            if place is None:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if place.missing and not keep_last:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            yield place


@contextmanager
def _name_errors(path: str) -> Iterator[None]:
    """Let an error have `path`, and not a name that was opened on the way to it."""
    try:
        yield
    except OSError as error:
        error.filename = path
        raise


@dataclass(frozen=True, slots=True)
class _Node:
    fd: int
    is_new: bool = False


def _enter(folder: _Node, name: bytes, opened: ExitStack, is_new: bool = False) -> Step[_Node]:
    """Return one entry of a folder, open until `opened` is closed."""
    fd = os.open(name, ENTRY, dir_fd=folder.fd)
    opened.callback(os.close, fd)
    kind = os.fstat(fd).st_mode
    return Step(_Node(fd, is_new), _target(fd) if stat.S_ISLNK(kind) else None, stat.S_ISDIR(kind))


def _text(place: Place[_Node]) -> str:
    return "/" + os.fsdecode(place.path)


def _target(fd: int) -> bytes:
    """Return where a link leads. Raises LinkCycleError for one of /proc that leads to an open file or a namespace, as
    openat2(2) does it (RESOLVE_NO_MAGICLINKS)."""
    target = os.readlink(b"", dir_fd=fd)
    if file_calls.file_system(fd) == file_calls.PROC and (target.startswith(b"/") or b":" in target):
        raise LinkCycleError(why=OPEN_FILE)
    return target
