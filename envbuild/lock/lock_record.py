"""Records of locks that were found current: a `lock` without a change finds the record of the run before it, and ends.

Its key (`envbuild.lock.stored_results`) is the bytes of the lock file, and all that decides whether that is current and
what is reported about it: the digest of the request, the text of the spec, the metadata of its project folders, the
target, the facts, and the code of the recipes. No time of a file is part of it. The record has the counts and the
warnings of that run. A run that ends here queries no archive and no index: that is for ``--refresh``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import envbuild
from envbuild.core.digest import file_digest
from envbuild.core.distributions import is_local_image
from envbuild.core.file_marks import FileMark, mark_files
from envbuild.lock.request import lock_request
from envbuild.lock.stored_results import StoredResults
from envbuild.matrix import fact_files, read_fact_file
from envbuild.spec.recipe_calls import recipe_file
from envbuild.spec.recipe_files import files_beside
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace

if TYPE_CHECKING:  # a run without a change does not read the lock
    from envbuild.lock.model import Lock

KIND = "current lock"


@dataclass(frozen=True, slots=True)
class LockRecord:
    """The counts of a current lock, and the warnings about it."""

    debian: int
    python: int
    sources: int
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, lock: Lock, warnings: tuple[str, ...]) -> LockRecord:
        """Return the record of a lock."""
        return cls(len(lock.debian), len(lock.python_files), len(lock.sources), warnings)


def decisive_parts(resolution: Resolution, workspace: Workspace) -> Iterator[str | bytes]:
    """Yield what decides an image beside its lock, the content of its project folders and envbuild's own code: the
    spec's request, the metadata of the folders, the facts, the code of the recipes and the files beside them."""
    yield from (envbuild.__version__, version("hpccm"), lock_request(resolution).digest(), repr(resolution.target))
    yield from (resolution.spec.text, resolution.spec.description, repr(resolution.runtime.env))
    yield from (repr((project.name, project.metadata)) for project in resolution.spec.dev)
    for folder in workspace.project.facts():  # newer facts may refuse what older ones allowed
        yield from (read_fact_file(path) for path in fact_files(folder))
    files = [recipe_file(recipe) for recipe in resolution.recipes]
    yield from (path.read_bytes() for path in files)
    folders = {path.parent for path in files}
    for path in files_beside(files):  # named as from their recipe: another clone of the project has the same image
        name = next(path.relative_to(folder) for folder in folders if path.is_relative_to(folder))
        yield os.fsencode(f"{name} {path.stat().st_mode & 0o111:o} {file_digest(path)}")


def read_marks(resolution: Resolution, workspace: Workspace) -> list[FileMark]:
    """Return what changes when one of the files changes that an image is made from beside its spec and lock: they are
    read several times while it is resolved and locked."""
    recipes = [recipe_file(recipe) for recipe in resolution.recipes]
    facts = [path for folder in workspace.project.facts() for path in fact_files(folder)]
    return mark_files([*facts, *recipes, *files_beside(recipes)])


def record_key(resolution: Resolution, workspace: Workspace) -> list[str] | None:
    """Return the key of the record of an image's lock; None without a lock, and for a base that is a file or another
    image of the project: it may have changed since."""
    path = workspace.project.lock_path(resolution.spec.path)
    if is_local_image(resolution.spec.base) or not path.is_file():
        return None
    parts = [str(path).encode(), path.read_bytes(), *decisive_parts(resolution, workspace)]
    return [hashlib.sha256(part if isinstance(part, bytes) else part.encode()).hexdigest() for part in parts]


def read_lock_record(resolution: Resolution, workspace: Workspace) -> LockRecord | None:
    """Return the record of a lock that was found current; None if there is none. resolution: with the versions that
    the lock has (`resolve_as_locked`)."""
    key = record_key(resolution, workspace)
    value: Any = StoredResults(workspace.store).read(KIND, key) if key else None
    try:
        found = LockRecord(**{**value, "warnings": tuple(value["warnings"])})
        whole = all(isinstance(count, int) for count in (found.debian, found.python, found.sources))
        return found if whole and all(isinstance(text, str) for text in found.warnings) else None
    except (TypeError, KeyError):
        return None


def write_lock_record(resolution: Resolution, record: LockRecord, workspace: Workspace) -> None:
    """Record that the lock of an image is current. resolution: as in `read_lock_record`."""
    if key := record_key(resolution, workspace):
        StoredResults(workspace.store).write(KIND, key, asdict(record))
