"""The sentence: load → resolve → lock → fetch → plan → build → export → verify.

Each arrow is one function from one frozen value to the next; only fetch, build, export and verify touch the world.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.build.engines.base import BuildOptions
from envbuild.core.errors import DamagedLayerError
from envbuild.core.text import counted
from envbuild.export.artifact_link import link_by_name
from envbuild.export.built_image import ImageRecord, read_image_record, write_image_record
from envbuild.lock.resolve import resolve_as_locked, resolve_image, resolve_in
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.target import check_machine
from envbuild.spec.workspace import Workspace

if TYPE_CHECKING:  # a run without work needs none of them
    from envbuild.build.engines.base import BuildResult, Engine
    from envbuild.build.plan.units import Plan
    from envbuild.export.project_image import Artifact
    from envbuild.lock.model import Lock


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `make`.

    engine: auto, or one of ENGINES; empty: the engine of the site.
    build: workers, jobs and the shell on failure.
    verify: whether to audit and run the finished image.
    """

    engine: str = ""
    build: BuildOptions = field(default_factory=BuildOptions)
    verify: bool = True


def make(name: str, workspace: Workspace, options: Options) -> ImageRecord:
    """Make the image `name`. Raises what its steps raise; see `envbuild.core.errors` for the exit codes."""
    began = time.monotonic()
    project, site, store, reporter = workspace.project, workspace.site, workspace.store, workspace.reporter
    spec = load_image_spec(name, project)
    before = resolve_as_locked(spec, project)
    if done := read_image_record(before, workspace, engine=options.engine, verified=options.verify):
        link_by_name(Path(done.artifact), done.image)
        return done

    # imported only when there is work, so that a run without any is short
    from envbuild.build.engines.select import choose_engine
    from envbuild.build.plan.planner import make_plan
    from envbuild.export.built_layout import open_base_layout
    from envbuild.lock.fetch import fetch
    from envbuild.lock.model import lock_digest
    from envbuild.lock.request import lock_request
    from envbuild.lock.update import ensure_lock
    from envbuild.verify.verify import verify

    resolution = resolve_in(spec, project)
    check_machine(resolution.target)
    lock = ensure_lock(resolution, workspace, partial(open_base_layout, workspace))
    engine = choose_engine(options.engine or site.engine, store, reporter)  # known before anything is downloaded
    fetch(lock, store, site, reporter, where=lock_request(resolution).source_places())
    plan = make_plan(resolution, lock)
    built, artifact = build_and_write(engine, plan, lock, workspace, options.build)
    evidence = verify(artifact, plan, built, resolution, lock, workspace) if options.verify else None
    link_by_name(artifact.path, plan.image)  # after verify: the link never names a file that failed it
    made = ImageRecord(
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
    write_image_record(made, plan, resolution, workspace)
    return made


def build_and_write(
    engine: Engine, plan: Plan, lock: Lock, workspace: Workspace, options: BuildOptions
) -> tuple[BuildResult, Artifact]:
    """Build the units and write the squashfs file; build layers again that turn out to be damaged meanwhile."""
    from envbuild.export.project_image import write_artifact

    store, reporter = workspace.store, workspace.reporter
    built = engine.build(plan, store, reporter, options)
    try:
        return built, write_artifact(plan, built, lock, store, reporter)
    except DamagedLayerError as error:  # they were moved aside
        for finding in error.findings:
            reporter.warn(f"{finding.message}: it is built again")
    built = engine.build(plan, store, reporter, options)
    return built, write_artifact(plan, built, lock, store, reporter)


def make_twice(name: str, workspace: Workspace, options: Options) -> ImageRecord:
    """Make, then build every unit a second time with the same engine, and compare. Raises BuildError naming the first
    difference; the store keeps the first build."""
    from envbuild.build.engines.select import choose_engine
    from envbuild.build.plan.planner import make_plan
    from envbuild.build.reproducibility import rebuild_and_compare
    from envbuild.lock.update import current_lock

    made = make(name, workspace, options)
    resolution = resolve_image(name, workspace)
    plan = make_plan(resolution, current_lock(resolution, workspace))
    engine = choose_engine(made.engine, workspace.store, workspace.reporter)
    rebuild_and_compare(plan, made.layers, engine, workspace.store, workspace.reporter, options.build)
    workspace.reporter.info(f"{name}: {counted(len(plan.units), 'unit')} built twice, all equal")
    return made
