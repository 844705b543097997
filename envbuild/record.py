"""What `make` made, kept in the store: a second run with nothing changed reads the spec, finds the record, and ends."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import envbuild
from envbuild.lock.request import lock_request
from envbuild.plan.units import MODEL, Plan
from envbuild.recipefile import file_of
from envbuild.resolve import Resolution
from envbuild.store import read_json, stamp, write_json
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


def record_path(resolution: Resolution, workspace: Workspace) -> Path | None:
    """Where the store keeps what `make` made of this, named by the hash of all that decides it: the lock file, what the
    spec asks for, the recipes' code, envbuild's own. None without a lock."""
    try:
        digest = hashlib.sha256(workspace.project.lock_path(resolution.spec.path).read_bytes())
    except FileNotFoundError:
        return None
    for text in (envbuild.__version__, str(MODEL), lock_request(resolution).digest(), repr(resolution.target)):
        digest.update(f"{text}\n".encode())
    digest.update(resolution.spec.text.encode() + resolution.spec.description.encode())
    for folder in workspace.project.facts():  # newer facts may refuse what older ones allowed
        for path in sorted(folder.rglob("*.yaml")):
            digest.update(path.read_bytes())
    for recipe in resolution.recipes:
        digest.update(Path(file_of(recipe)).read_bytes())
    for path in sorted(Path(__file__).parent.rglob("*.py")):  # a changed envbuild may plan otherwise
        digest.update(path.read_bytes())
    return workspace.store.root / "images" / f"{digest.hexdigest()}.json"


def finished(resolution: Resolution, workspace: Workspace, *, engine: str = "", verified: bool = False) -> Made | None:
    """What an earlier run made, if it is what is asked for (by this engine, verified) and its artifact still lies there
    untouched."""
    path = record_path(resolution, workspace)
    value = read_json(path) if path else None
    if value is None:
        return None
    try:
        if value["stat"] != stamp(Path(value["made"]["artifact"])):
            return None
    except FileNotFoundError:
        return None
    fields: dict[str, Any] = {
        key: tuple(item) if isinstance(item, list) else item for key, item in value["made"].items()
    }
    made = Made(**fields)
    if (verified and not made.evidence) or engine not in ("", "auto", made.engine):
        return None
    return replace(made, up_to_date=True, seconds=0.0)


def remember(made: Made, plan: Plan, resolution: Resolution, workspace: Workspace) -> None:
    """Keep what was made, and what the store must hold for it: unit keys and input digests (`envbuild.collect`)."""
    path = record_path(resolution, workspace)
    assert path is not None, "an image is made from a lock"
    blobs = {blob.sha256 for unit in plan.units for item in unit.inputs for blob in item.blobs}
    holds = {"units": sorted(plan.keys().values()), "blobs": sorted(blobs)}
    write_json(path, {"made": asdict(made), "stat": stamp(Path(made.artifact)), "holds": holds})
