"""Records of locks that were found current: a `lock` without a change finds the record of the run before it, and ends.

Its key (`envbuild.lock.stored_results`) is the bytes of the lock file, and all that decides whether that is current and
what is reported about it: the digest of the request, the text of the spec, the metadata of its project folders, the
target, the facts, and the code of the recipes. No time of a file is part of it. The record has the counts and the
warnings of that run. A run that ends here queries no archive and no index: that is for ``--refresh``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import envbuild
from envbuild.core.digest import file_digest
from envbuild.core.distributions import is_local_image
from envbuild.lock.request import lock_request
from envbuild.lock.stored_results import StoredResults
from envbuild.matrix import fact_files, read_fact_file
from envbuild.spec.recipe_calls import recipe_file
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
    yield from (envbuild.__version__, lock_request(resolution).digest(), repr(resolution.target))
    yield from (resolution.spec.text, resolution.spec.description, repr(resolution.runtime.env))
    yield from (repr((project.name, project.metadata)) for project in resolution.spec.dev)
    for folder in workspace.project.facts():  # newer facts may refuse what older ones allowed
        yield from (read_fact_file(path) for path in fact_files(folder))
    files = [recipe_file(recipe) for recipe in resolution.recipes]
    yield from (path.read_bytes() for path in files)
    for folder in dict.fromkeys(path.parent for path in files):  # patches and programs that recipes read
        beside = [*(path for path in folder.glob("[!.]*") if path.suffix != ".py"), *folder.glob("data/**/*")]
        yield from (file_digest(path) for path in sorted(beside) if path.is_file() and "__pycache__" not in path.parts)


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
