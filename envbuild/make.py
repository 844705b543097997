"""The sentence: load → resolve → lock → fetch → plan → build → export → verify.

Each arrow is one function from one frozen value to the next; only fetch, build, export and verify touch the world.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from envbuild.console import counted
from envbuild.copies import wheel_copies
from envbuild.engines.base import BuildOptions, Engine
from envbuild.errors import EngineError, LockError
from envbuild.lock.lockfile import Lock, lock_digest, read_lock
from envbuild.lock.request import lock_request
from envbuild.lock.resolve import resolve_as_locked, resolve_in
from envbuild.plan.units import Plan
from envbuild.record import Made, finished, remember
from envbuild.resolve import Resolution
from envbuild.spec import load
from envbuild.target import Target
from envbuild.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Options:
    """How to make: the engine (auto, embedded, buildah; empty: the site's), what to build with, whether to verify."""

    engine: str = ""
    build: BuildOptions = field(default_factory=BuildOptions)
    verify: bool = True


def make(name: str, workspace: Workspace, options: Options) -> Made:
    """Make the image `name`. Raises what its steps raise; see `envbuild.errors` for the exit codes."""
    began = time.monotonic()
    spec = load(name, workspace.project)
    before = resolve_as_locked(spec, workspace.project)
    if done := finished(before, workspace, engine=options.engine, verified=options.verify):
        return done

    from envbuild.export import point, squashfs
    from envbuild.fetch import fetch
    from envbuild.verify.image import verify  # imported only when there is work: the run that finds none stays short

    resolution = resolve_in(spec, workspace.project)
    check_machine(resolution.target)
    with workspace.store.lock("gc", shared=True):
        lock = locked(resolution, workspace)
        engine = chosen(options, workspace)
        where = lock_request(resolution).places()
        fetch(lock, workspace.store, workspace.site, workspace.talk, where=where)
        plan = planned(resolution, lock)
        built = engine.build(plan, workspace.store, workspace.talk, options.build)
        artifact = squashfs(plan, built, lock, workspace.store, workspace.talk)
        evidence = verify(artifact, plan, built, resolution, lock, workspace) if options.verify else None
        point(artifact, plan)
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
        remember(made, plan, resolution, workspace)
    return made


def check_machine(target: Target) -> None:
    """Raises EngineError when this machine cannot run the programs of the target's CPU architecture: told before
    anything is downloaded. An emulator that the kernel knows (binfmt_misc) will do, slowly."""
    import platform

    emulator = Path(f"/proc/sys/fs/binfmt_misc/qemu-{target.machine}")
    if platform.machine() != target.machine and not emulator.exists():
        raise EngineError(
            f"target '{target.name}' is {target.machine} and this machine is {platform.machine()}",
            hint="lock and fetch here (envbuild fetch NAME --to DIR), and make it on a machine of that architecture",
        )


def resolved(name: str, workspace: Workspace, forget: Collection[str] = ()) -> Resolution:
    """The first two steps: load and resolve. `forget`: components whose version is to be picked anew."""
    return resolve_in(load(name, workspace.project), workspace.project, forget)


def locked(resolution: Resolution, workspace: Workspace) -> Lock:
    """The lock of an image, made when there is none. Raises LockError when the image asks for something else than the
    lock answers."""
    if not workspace.project.lock_path(resolution.spec.path).is_file():
        workspace.talk.say(f"{resolution.spec.name} has no lock; locking its inputs")
        return relock(resolution, workspace)
    from envbuild.agree import agree

    lock = existing_lock(resolution, workspace)
    agree(resolution, lock, workspace)
    return lock


def existing_lock(resolution: Resolution, workspace: Workspace) -> Lock:
    """The lock that is there. Raises LockError when there is none, or when the image asks for something else."""
    path, name = workspace.project.lock_path(resolution.spec.path), resolution.spec.name
    if not path.is_file():
        raise LockError(f"{name} has no lock", hint=f"envbuild lock {name}")
    lock = read_lock(path)
    if lock.inputs != lock_request(resolution).digest():
        raise LockError(
            f"{path.name} is outdated, because the inputs of {name} changed since it was made",
            hint=f"envbuild lock {name}",
            where=str(path),
        )
    return lock


def open_lock(resolution: Resolution) -> Lock:
    """What stands for the lock of an image that has none: good for reading its plan, not for building it."""
    from envbuild.lock.draft import draft

    return draft(lock_request(resolution))


def relock(
    resolution: Resolution,
    workspace: Workspace,
    *,
    upgrade: frozenset[str] = frozenset(),
    refresh: bool = False,
    fresh: bool = False,
) -> Lock:
    """Lock an image and write the file. An older lock's versions stay where they still fit, unless `fresh`; a damaged
    one is put aside with a warning."""
    from envbuild.agree import confirmed
    from envbuild.lock.changes import changes
    from envbuild.lock.lock import make_lock
    from envbuild.lock.lockfile import write_lock
    from envbuild.pins import pins

    talk, name = workspace.talk, resolution.spec.name
    new_path = workspace.project.new_lock_path(resolution.spec.path)
    previous = None if fresh else earlier_lock(resolution, workspace)
    lock = make_lock(
        lock_request(resolution),
        workspace.site,
        workspace.store,
        talk,
        previous=previous,
        upgrade=upgrade,
        refresh=refresh,
        waivers=tuple({"fact": waiver.fact, "reason": waiver.reason} for waiver in resolution.waivers),
        clashes=partial(wheel_copies, resolution.env, resolution.spec.where),
        pins=pins(resolution),
    )
    lock = confirmed(resolution, lock, workspace)
    for line in changes(previous, lock) if previous else ():
        talk.say(line)
    if previous == lock:
        talk.say(f"{name}: the lock is unchanged")
        return lock
    new_path.parent.mkdir(parents=True, exist_ok=True)
    write_lock(lock, new_path)
    talk.say(f"wrote {new_path}")
    return lock


def earlier_lock(resolution: Resolution, workspace: Workspace) -> Lock | None:
    """The lock whose versions are to stay."""
    path = workspace.project.lock_path(resolution.spec.path)
    if not path.is_file():
        return None
    try:
        return read_lock(path)
    except LockError as error:
        workspace.talk.warn(f"{error.message}; its versions are forgotten")
        return None


def chosen(options: Options, workspace: Workspace) -> Engine:
    """The engine that was asked for, or the first that can run here: known before anything is downloaded."""
    from envbuild.engines.choose import choose

    return choose(options.engine or workspace.site.engine, workspace.store, workspace.talk)


def planned(resolution: Resolution, lock: Lock) -> Plan:
    """The plan; hpccm is imported only here, so that a run with nothing to do does not pay for it."""
    from envbuild.plan.planner import make_plan

    return make_plan(resolution, lock)


def check(name: str, workspace: Workspace, options: Options) -> Made:
    """Make, then build every unit a second time with the same engine, and compare. Raises BuildError naming the first
    difference; the store keeps the first build."""
    from envbuild.compare import compare, compare_layers

    made = make(name, workspace, options)
    resolution = resolved(name, workspace)
    plan = planned(resolution, existing_lock(resolution, workspace))
    first = {unit: workspace.store.unit(key) for unit, key in plan.keys().items()}
    engine = chosen(replace(options, engine=made.engine), workspace)
    with workspace.store.lock("gc", shared=True):
        again = replace(options.build, rebuild=True)
        second = engine.build(plan, workspace.store, workspace.talk, again)
        try:
            compare(plan, first, workspace.store)
            compare_layers(made.layers, second.layers, workspace.store)
        finally:
            for record in first.values():
                if record:
                    workspace.store.record_unit(record)
    workspace.talk.say(f"{name}: {counted(len(plan.units), 'unit')} built twice, all equal")
    return made
