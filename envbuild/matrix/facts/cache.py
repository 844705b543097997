"""A compiled matrix on disk, so that a query needs neither YAML nor the reading of constraints.

``$XDG_CACHE_HOME/envbuild/matrix/<key>.table`` (or below ``~/.cache``): one line with a checksum of the rest, then what
`envbuild.matrix.facts.stored_table` makes of a table, in Python's own format for values (marshal): it reads big
numbers and nested tuples four times as fast as JSON. Only entries that this user or root alone can write are read.
The key covers the bytes and names of the fact files, this package's code and the version of Python, so that an entry
never has to be judged old. A cache that cannot be read or written is ignored: nothing here raises."""

from __future__ import annotations

import contextlib
import marshal
import os
import re
import stat
import sys
import time
import zlib
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from envbuild.core.errors import SpecError
from envbuild.core.file_marks import FileMark, mark_files
from envbuild.core.file_status import file_status
from envbuild.core.gc_pause import gc_paused
from envbuild.core.regular_file import open_regular
from envbuild.matrix import fact_files, read_fact_file
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.stored_table import plain_table, restore_table

FORMAT = 3
WRITABLE = 0o022  # bits of the mode; with an umask of 002 the user's group could write entries
MAX_SIZE = 256 << 20  # bytes of an entry; a matrix of today has 2 MB
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
ENTRY = re.compile(r"[0-9a-f]{40}\.table")
MAX_ENTRIES = 8  # each project with facts of its own has one, and every change of a fact makes another


def cache_key(folders: Sequence[Path]) -> str:
    """Return the key of everything that the compiled form of these fact files depends on; empty when they cannot be
    read."""
    whole = blake2b(
        f"envbuild matrix {FORMAT} {sys.implementation.cache_tag}\n{_current(folders)}\n".encode(), digest_size=20
    )
    try:
        for folder in folders:
            whole.update(f"{folder.absolute()}\n".encode())
            for path in fact_files(folder):
                _add(whole, path)
    except (OSError, SpecError):
        return ""
    for path in code_files():  # where the code cannot be read as files, its format number replaces it
        with contextlib.suppress(SpecError):
            _add(whole, path)
    return whole.hexdigest()


def mark_facts(folders: Sequence[Path]) -> list[FileMark]:
    """Return what changes when a fact file changes, also if it is as before afterwards; nothing where a folder cannot
    be read."""
    try:
        return mark_files(path for folder in folders for path in fact_files(folder))
    except (OSError, SpecError):
        return []


def code_files() -> list[Path]:
    """Return the modules that read and compile facts: those of this folder, and what they use of the solver's."""
    here = Path(__file__).parent
    return [*sorted(here.glob("*.py")), *sorted((here.parent / "sat").glob("*.py"))]


def entry_path(folder: Path | None, key: str) -> Path | None:
    """Return the path of the entry of `key`; None when this user has no folder for it. `folder` None: the user's
    cache."""
    if folder is None:
        home = os.environ.get("XDG_CACHE_HOME", "")
        if not home.startswith("/"):  # the XDG base directory specification: relative paths are to be ignored
            try:
                home = str(Path.home() / ".cache")
            except RuntimeError:
                return None
        folder = Path(home) / "envbuild" / "matrix"
    return folder / f"{key}.table"


def read_entry(path: Path) -> FactTable | None:
    """Return the fact table of an entry; None when it is missing, damaged, or one that another user can write."""
    try:
        with open_regular(path, follow=False) as file:  # another user may write XDG_CACHE_HOME
            status, owner = (found := file_status(file.fileno())).stat, found.owner
            if owner not in (0, os.geteuid()) or status.st_mode & WRITABLE or status.st_size > MAX_SIZE:
                return None
            head, _, body = file.read(status.st_size + 1).partition(b"\n")
        if head != checksum(body):
            return None
        with gc_paused():
            matrix = restore_table(marshal.loads(body))
    except (OSError, ValueError, TypeError, LookupError, EOFError, AttributeError):
        return None
    mark_used(path)
    return matrix


def mark_used(path: Path) -> bool:
    """Make an entry the newest one, so that others are deleted before it. Return whether it exists."""
    try:
        os.utime(path)
    except OSError:  # missing, or another user's
        return path.exists()
    return True


def write_entry(path: Path, matrix: FactTable) -> None:
    """Store `matrix` as an entry, and delete all but the entries that were used last.

    Another user may have put a link, or another folder, in the place of the folder: it must be the caller's own, and
    nothing but entries is deleted there."""
    body = marshal.dumps(plain_table(matrix))
    temporary = f".{path.name}.{os.getpid()}-{time.monotonic_ns()}"
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        found = file_status(folder)
        if found.owner != os.geteuid():
            return
        if found.stat.st_mode & WRITABLE:  # made with an umask of 002
            os.fchmod(folder, stat.S_IMODE(found.stat.st_mode) & ~WRITABLE)
        try:
            with os.fdopen(os.open(temporary, NEW, 0o600, dir_fd=folder), "wb") as file:
                file.write(checksum(body) + b"\n" + body)
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        names = [name for name in os.listdir(folder) if ENTRY.fullmatch(name)]  # noqa: PTH208 - of the open folder
        names.sort(key=lambda name: os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime, reverse=True)
        for name in names[MAX_ENTRIES:]:
            os.unlink(name, dir_fd=folder)
    except OSError:
        return
    finally:
        os.close(folder)


def _add(whole: Any, path: Path) -> None:
    data = read_fact_file(path)
    whole.update(f"{path.name} {len(data)}\n".encode() + data)


def _current(folders: Iterable[Path]) -> str:
    """Return the current folder, where it matters: the positions in files below it are relative to it."""
    try:
        here = Path.cwd()
    except OSError:
        return ""
    return str(here) if any(folder.absolute().is_relative_to(here) for folder in folders) else ""


def checksum(body: bytes) -> bytes:
    return f"envbuild matrix {FORMAT} {zlib.crc32(body):08x} {len(body)}".encode()
