"""The sentence: load → resolve → lock → fetch → plan → build → export → verify.

Each arrow is one function from one frozen value to the next. What `make` did is recorded in the store, so that a
second run with nothing
changed reads the spec and the lock, finds the record, and ends.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import envbuild
from envbuild.engines.base import BuildOptions, Built
from envbuild.errors import LockError
from envbuild.lock.lockfile import Lock, lock_digest, read_lock
from envbuild.plan.units import MODEL, Plan
from envbuild.recipefile import file_of
from envbuild.resolve import Resolution, lock_request, resolve_in
from envbuild.spec import load
from envbuild.store import read_json, write_json
from envbuild.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Options:
    """How to make: the engine (auto, embedded, buildah), what to build with, whether to verify."""

    engine: str = ""
    build: BuildOptions = field(default_factory=BuildOptions)
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Made:
    """What came of it. `artifact` is the squashfs file; `evidence` what verify saw ("" when it did not run)."""

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


def make(name: str, workspace: Workspace, options: Options) -> Made:
    """Make the image `name`. Raises what its steps raise; see `envbuild.errors` for the exit codes."""
    began = time.monotonic()
    spec = load(name, workspace.project)
    resolution = resolve_in(spec, workspace.project)
    lock = locked(resolution, workspace)
    record = record_path(resolution, lock, workspace)
    if done := finished(record, options):
        return done

    from envbuild.export import squashfs
    from envbuild.fetch import fetch
    from envbuild.verify.image import verify  # imported only when there is work: the run that finds none stays short

    fetch(lock, workspace.store, workspace.site, workspace.talk)
    plan = planned(resolution, lock)
    built = build(plan, workspace, options)
    artifact = squashfs(plan, built, lock, workspace.store, workspace.talk)
    evidence = verify(artifact, plan, built, resolution, lock, workspace) if options.verify else None
    made = Made(
        image=lock.image,
        artifact=str(artifact.path),
        sha256=artifact.sha256,
        lock=lock_digest(lock),
        engine=built.engine,
        messages=artifact.messages,
        evidence=str(evidence) if evidence else "",
        layers=tuple(layer.diff_id for layer in built.layers),
        built=built.built,
        reused=built.reused,
        seconds=round(time.monotonic() - began, 1),
    )
    write_json(record, {"made": asdict(made), "stat": stamp(artifact.path), "holds": holds(plan)})
    return made


def resolved(name: str, workspace: Workspace) -> Resolution:
    """The first two steps: load and resolve."""
    return resolve_in(load(name, workspace.project), workspace.project)


def locked(resolution: Resolution, workspace: Workspace) -> Lock:
    """The lock of an image, made when there is none. Raises LockError when the image asks for something else than the
    lock answers."""
    path = workspace.project.lock_path(resolution.spec.path)
    if not path.is_file():
        workspace.talk.say(f"{resolution.spec.name} has no lock; locking its inputs")
        return relock(resolution, workspace)
    lock = read_lock(path)
    if lock.inputs != lock_request(resolution).digest():
        raise LockError(
            f"{path.name} is outdated, because the inputs of {resolution.spec.name} changed since it was made",
            hint=f"envbuild lock {resolution.spec.name}",
            where=str(path),
        )
    return lock


def relock(
    resolution: Resolution,
    workspace: Workspace,
    *,
    upgrade: frozenset[str] = frozenset(),
    refresh: bool = False,
    fresh: bool = False,
) -> Lock:
    """Lock an image and write the file. An older lock's versions stay where they still fit, unless `fresh`."""
    from envbuild.lock.lock import changes, make_lock
    from envbuild.lock.lockfile import write_lock

    old_path = workspace.project.lock_path(resolution.spec.path)
    new_path = workspace.project.new_lock_path(resolution.spec.path)
    previous = read_lock(old_path) if old_path.is_file() and not fresh else None
    waivers = tuple({"fact": waiver.fact, "reason": waiver.reason} for waiver in resolution.waivers)
    lock = make_lock(
        lock_request(resolution),
        workspace.site,
        workspace.store,
        workspace.talk,
        previous=previous,
        upgrade=upgrade,
        refresh=refresh,
        waivers=waivers,
    )
    for line in changes(previous, lock) if previous else ():
        workspace.talk.say(line)
    if previous is None or previous != lock:
        new_path.parent.mkdir(parents=True, exist_ok=True)
        write_lock(lock, new_path)
        workspace.talk.say(f"wrote {new_path}")
    return lock


def planned(resolution: Resolution, lock: Lock) -> Plan:
    """The plan; hpccm is imported only here, so that a run with nothing to do does not pay for it."""
    from envbuild.plan.planner import make_plan

    return make_plan(resolution, lock)


def build(plan: Plan, workspace: Workspace, options: Options) -> Built:
    """Build with the engine that was asked for, or the first that can run here."""
    from envbuild.engines.choose import choose

    engine = choose(options.engine or workspace.site.engine, workspace.store, workspace.talk)
    return engine.build(plan, workspace.store, workspace.talk, options.build)


def check(name: str, workspace: Workspace, options: Options) -> Made:
    """Make, then build every unit a second time, and compare. Raises BuildError naming the first difference."""
    from envbuild.compare import compare, compare_layers

    made = make(name, workspace, options)
    resolution = resolved(name, workspace)
    plan = planned(resolution, locked(resolution, workspace))
    first = {unit: workspace.store.unit(key) for unit, key in plan.keys().items()}
    second = build(plan, workspace, replace(options, build=replace(options.build, rebuild=True)))
    compare(plan, first, workspace.store)
    compare_layers(made.layers, second.layers, workspace.store)
    workspace.talk.say(f"{name}: {len(first)} units built twice, all equal")
    return made


def record_path(resolution: Resolution, lock: Lock, workspace: Workspace) -> Path:
    """Where the store keeps what `make` made of this. Named by the hash of everything that decides it: lock, recipes'
    code, envbuild's own."""
    digest = hashlib.sha256(f"{lock_digest(lock)}\n{envbuild.__version__}\n{MODEL}\n".encode())
    digest.update(resolution.spec.text.encode() + resolution.spec.description.encode())
    digest.update(repr(resolution.target).encode())
    for recipe in resolution.recipes:
        digest.update(Path(file_of(recipe)).read_bytes())
    for path in sorted(Path(__file__).parent.rglob("*.py")):  # a changed envbuild may plan otherwise
        stat = path.stat()
        digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return workspace.store.root / "images" / f"{digest.hexdigest()}.json"


def holds(plan: Plan) -> dict[str, list[str]]:
    """What the store must keep for this image: unit keys and input digests (`envbuild.collect`)."""
    blobs = {blob.sha256 for unit in plan.units for item in unit.inputs for blob in item.blobs}
    return {"units": sorted(plan.keys().values()), "blobs": sorted(blobs)}


def finished(record: Path, options: Options) -> Made | None:
    """What an earlier run made, if it is what `options` ask for and its artifact still lies there untouched."""
    value = read_json(record)
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
    if (options.verify and not made.evidence) or options.engine not in ("", "auto", made.engine):
        return None
    return replace(made, up_to_date=True, seconds=0.0)


def stamp(path: Path) -> list[int]:
    """Size and time of a file: enough to see that nobody touched it."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]
