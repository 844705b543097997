"""What `make` made: a second run with nothing changed reads the spec, finds the record, and ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import envbuild
from envbuild.core.store.records import read_record, record_path, write_record
from envbuild.lock.request import lock_request
from envbuild.plan.units import MODEL, Plan
from envbuild.recipefile import file_of
from envbuild.resolve import Resolution
from envbuild.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Made:
    """What came of it. `artifact` is the squashfs file; `evidence` the file of what verify saw ("" when it did not
    run); `messages` are the repairs made for enroot."""

    image: str
    artifact: str
    sha256: str
    lock: str
    engine: str
    messages: tuple[str, ...]
    evidence: str
    layers: tuple[str, ...]
    built: tuple[str, ...]
    reused: tuple[str, ...]
    seconds: float
    up_to_date: bool = False


def made_path(resolution: Resolution, workspace: Workspace) -> Path | None:
    """Return where the store keeps what `make` made of this; None without a lock."""
    try:
        lock = workspace.project.lock_path(resolution.spec.path).read_bytes()
    except FileNotFoundError:
        return None
    return record_path(workspace.store, [lock, *decisive(resolution, workspace)])


def decisive(resolution: Resolution, workspace: Workspace) -> Iterator[str | bytes]:
    """Yield what beside the lock file and envbuild's own code decides an image: what the spec asks for, the facts, the
    recipes' code."""
    yield from (envbuild.__version__, str(MODEL), lock_request(resolution).digest(), repr(resolution.target))
    yield from (resolution.spec.text, resolution.spec.description)
    for folder in workspace.project.facts():  # newer facts may refuse what older ones allowed
        yield from (path.read_bytes() for path in sorted(folder.rglob("*.yaml")))
    yield from (Path(file_of(recipe)).read_bytes() for recipe in resolution.recipes)


def finished(resolution: Resolution, workspace: Workspace, *, engine: str = "", verified: bool = False) -> Made | None:
    """Return what an earlier run made, if it is what is asked for (by this engine, verified) and its artifact still
    lies there untouched."""
    path = made_path(resolution, workspace)
    value = read_record(path) if path else None
    if value is None:
        return None
    fields: dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in value.items()}
    made = Made(**fields)
    if (verified and not made.evidence) or engine not in ("", "auto", made.engine):
        return None
    return replace(made, up_to_date=True, seconds=0.0)


def remember(made: Made, plan: Plan, resolution: Resolution, workspace: Workspace) -> None:
    """Keep what was made, with the unit keys and input digests that it holds in the store."""
    path = made_path(resolution, workspace)
    assert path is not None, "an image is made from a lock"
    blobs = {blob.sha256 for unit in plan.units for item in unit.inputs for blob in item.blobs}
    write_record(path, asdict(made), units=plan.keys().values(), blobs=blobs)
