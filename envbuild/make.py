"""The sentence: load → resolve → lock → plan → fetch → build → export → verify.

Each arrow is one function from one frozen value to the next; only fetch, build, export and verify touch the world.
`prepare` is its part up to the plan, which `make` and `make_layers` have in common.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.build.engines.base import BuildOptions, build_units
from envbuild.core.distributions import is_local_image
from envbuild.core.errors import ConflictError, DamagedLayerError, SpecError
from envbuild.core.text import counted
from envbuild.export.artifact_link import link_by_name
from envbuild.export.built_image import ImageRecord, RecordKey, key_of_lock, read_image_record, write_image_record
from envbuild.lock.resolve import resolve_as_locked, resolve_image, resolve_in
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.target import check_machine
from envbuild.spec.workspace import Workspace

if TYPE_CHECKING:  # a run without work needs none of them
    from envbuild.build.cache.open_cache import OpenCache
    from envbuild.build.cache.unit_supply import UnitSupply
    from envbuild.build.engines.base import BuildResult, Engine
    from envbuild.build.plan.units import Plan
    from envbuild.export.project_image import SquashfsFile
    from envbuild.lock.model import Lock
    from envbuild.spec.image_spec import ImageSpec
    from envbuild.spec.resolve import Resolution


class LockRule(StrEnum):
    """The rule for the lock of an image before it is built."""

    MAKE = "make"  # made if there is none; an outdated one is an error
    RENEW = "renew"  # made if there is none, and again if it is outdated
    REQUIRE = "require"  # never made
    PRESENT = "present"  # taken as it is: one that answers the inputs of the image, also if facts changed since


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `make`.

    engine: auto, or one of ENGINES; empty: an image that is up to date may be of any, and others are made by the engine
        of the site.
    build: workers, jobs and the shell on failure.
    verify: whether to audit and run the finished image.
    caches: of units, opened (`envbuild.build.cache.open_cache`); None: those of the site.
    lock: the rule for a lock that is missing or outdated.
    mounted: whether the project folders of the spec are left out, because they will be mounted.
    """

    engine: str = ""
    build: BuildOptions = field(default_factory=BuildOptions)
    verify: bool = True
    caches: Sequence[OpenCache] | None = None
    lock: LockRule = LockRule.MAKE
    mounted: bool = False


def make(name: str, workspace: Workspace, options: Options) -> ImageRecord:
    """Make the image `name`. Raises what its steps raise; see `envbuild.core.errors` for the exit codes."""
    began = time.monotonic()
    spec = load_image_spec(name, workspace.project)
    before = resolve_before(spec, workspace)
    done = before and read_image_record(before, workspace, engine=options.engine, verified=options.verify)
    uses_caches = done and cache_names(options, workspace).issuperset(done.caches)
    if before and done and uses_caches:
        if not check_base(before, workspace, options.lock):
            link_by_name(Path(done.artifact), done.image)
            return done
        spec = load_image_spec(name, workspace.project)  # again: comparing the base may have taken minutes

    # imported only when there is work, so that a run without any is short
    from envbuild.lock.model import lock_digest
    from envbuild.verify.provenance import image_documents, write_documents
    from envbuild.verify.verify import verify

    ready = prepare(spec, workspace, options)
    resolution, lock, plan, inputs = ready.resolution, ready.lock, ready.plan, ready.inputs
    result = obtain_and_build(ready, workspace)
    with one_at_a_time(ready, workspace):
        earlier = read_image_record(resolution, workspace, key=ready.key)  # not of what is in the files by now
        built, artifact = write_image(ready, result, workspace, earlier)
        path, evidence = verify(artifact, plan, built, resolution, lock, workspace) if options.verify else ("", None)
        caches = built.caches
        base_caches = ready.build.base_caches
        all_caches = sorted({*base_caches, *caches})
        documents = image_documents(resolution, lock, ready.key.lock, evidence, built.engine, workspace, all_caches)
        write_documents(documents, artifact.path, artifact.sha256)
        link_by_name(artifact.path, plan.image)  # after verify: the link never names a file that failed it
        made = ImageRecord(
            image=lock.image,
            artifact=str(artifact.path),
            sha256=artifact.sha256,
            lock=lock_digest(lock),
            engine=built.engine,
            messages=artifact.messages,
            evidence=str(path),
            layers=tuple(layer.diff_id for layer in built.layers),
            built=built.built,
            reused=tuple(unit for unit in built.reused if unit not in inputs.cached),
            cached=tuple(unit for unit in built.reused if unit in inputs.cached),
            caches=caches,
            base_caches=base_caches,
            seconds=round(time.monotonic() - began, 1),
            forecast=inputs.forecast.row() if inputs.forecast else {},
        )
        for key in (ready.key, *ready.mounted):
            write_image_record(made, plan, key, artifact.stamp)
    return made


def resolve_before(spec: ImageSpec, workspace: Workspace) -> Resolution | None:
    """Return an image with the versions of its lock; None if they do not fit the spec any more: others may."""
    try:
        return resolve_as_locked(spec, workspace.project)
    except ConflictError:
        return None


def check_base(resolution: Resolution, workspace: Workspace, rule: LockRule) -> bool:
    """Return whether the lock of an image is to be made again because of its base, which is a file or another image of
    the project; report one that was made again since by a rule that leaves the lock as it is. Raises LockError by the
    rule that requires a current lock."""
    if not is_local_image(resolution.spec.base):
        return False
    from envbuild.export.built_layout import own_images, report_newer_base
    from envbuild.lock.required_lock import require_lock
    from envbuild.lock.update import base_changed, current_lock

    own, spec, lock = own_images(workspace), resolution.spec, current_lock(resolution, workspace)
    if rule is LockRule.REQUIRE:
        require_lock(resolution, workspace, own)
    elif rule is LockRule.RENEW:
        return base_changed(resolution, lock, workspace, own)
    else:
        report_newer_base(spec, lock, workspace)
    return False


@dataclass(frozen=True, slots=True)
class ReadyImage:
    """An image that can be built: `inputs` obtains what its units need. `mounted`: the key of the image in which its
    project folders are mounted, for `run`: any copy of them will do."""

    resolution: Resolution
    lock: Lock
    key: RecordKey
    mounted: tuple[RecordKey, ...]
    engine: Engine
    plan: Plan
    build: BuildOptions
    inputs: UnitSupply


def prepare(spec: ImageSpec, workspace: Workspace, options: Options) -> ReadyImage:
    """Resolve, lock and plan an image. Raises what these steps raise."""
    from envbuild.build.cache.unit_supply import UnitSupply
    from envbuild.build.engines.select import choose_engine
    from envbuild.build.plan.planner import make_plan
    from envbuild.export.base_caches import caches_below, check_base_caches
    from envbuild.export.built_layout import own_images, report_newer_base
    from envbuild.lock.dev_content import lock_beside_contents
    from envbuild.lock.lock_record import read_marks
    from envbuild.lock.request import lock_request
    from envbuild.lock.required_lock import require_lock
    from envbuild.lock.update import current_lock, ensure_lock, renew_lock

    site, store, reporter = workspace.site, workspace.store, workspace.reporter
    resolution = resolve_in(spec, workspace.project)
    if options.mounted:
        resolution = resolution.mounted()
    own, marks = own_images(workspace), read_marks(resolution, workspace)  # the recipes were loaded at this moment
    check_machine(resolution.target)
    if options.lock is LockRule.PRESENT:
        lock = current_lock(resolution, workspace)
    else:
        rules = {LockRule.MAKE: ensure_lock, LockRule.RENEW: renew_lock, LockRule.REQUIRE: require_lock}
        write = partial(rules[options.lock], resolution, workspace, own)
        lock, resolution = lock_beside_contents(resolution, workspace.project, write)
        report_newer_base(spec, lock, workspace)
    key = key_of_lock(resolution, lock, workspace)
    if read_marks(resolution, workspace) != marks:
        raise SpecError(
            f"a recipe, a file beside it or a fact changed while {spec.name} was locked", hint="run the command again"
        )
    mounted = (key_of_lock(resolution.mounted(), lock, workspace),) if resolution.contents else ()
    check_base_caches(resolution, lock, workspace)
    engine = choose_engine(options.engine or site.engine, store, reporter)  # known before anything is downloaded
    plan = make_plan(resolution, lock)
    caches = cache_names(options, workspace)
    below = {cache for names in caches_below(resolution, lock, workspace).values() for cache in names}
    build = replace(options.build, compiler_cache=site.compiler_cache, caches=caches, base_caches=tuple(sorted(below)))
    inputs = UnitSupply(engine, plan, lock, lock_request(resolution), workspace, build, options.caches, own)
    return ReadyImage(resolution, lock, key, mounted, engine, plan, build, inputs)


def cache_names(options: Options, workspace: Workspace) -> frozenset[str]:
    """Return the names, in records of units, of the caches that are used. Raises SignatureError."""
    if options.caches is None:
        return frozenset(name for cache in workspace.site.caches for name in cache.names)
    return frozenset(name for item in options.caches for name in item.setting.names)


def make_layers(name: str, workspace: Workspace, options: Options) -> tuple[Plan, BuildResult]:
    """Make the layers of an image, without a file of them: build the units that changed. Return its plan and the
    result of the build. Raises as `make`."""
    ready = prepare(load_image_spec(name, workspace.project), workspace, options)
    return ready.plan, obtain_and_build(ready, workspace)


@contextlib.contextmanager
def one_at_a_time(ready: ReadyImage, workspace: Workspace) -> Iterator[None]:
    """Hold the lock of an image while its file is written and verified: of two commands that make it at once, the
    second one finds the file of the first, and does not replace what is being verified. The name of the file has that
    of the image and the digest of the lock."""
    from envbuild.lock.model import lock_digest

    name, report = ready.plan.image, workspace.reporter.info
    with workspace.store.lock(
        f"image-{name}-{lock_digest(ready.lock)[7:19]}",
        lambda: report(f"{name}: waiting for another process that makes its file"),
    ):
        yield


def obtain_and_build(ready: ReadyImage, workspace: Workspace) -> BuildResult:
    """Obtain the inputs of the units of an image that are to be built, and build these."""
    ready.inputs.obtain()
    return build_units(ready.engine, ready.plan, workspace.store, workspace.reporter, ready.build)


def build_and_write(ready: ReadyImage, workspace: Workspace) -> tuple[BuildResult, SquashfsFile]:
    """Obtain the inputs of an image, build its units and write its squashfs file."""
    return write_image(ready, obtain_and_build(ready, workspace), workspace)


def write_image(
    ready: ReadyImage, built: BuildResult, workspace: Workspace, earlier: ImageRecord | None = None
) -> tuple[BuildResult, SquashfsFile]:
    """Write the squashfs file of built units; build layers again that turn out to be damaged meanwhile.

    earlier: of the same inputs; its file is not written again if it has the same layers.
    """
    from envbuild.export.built_image import find_unchanged_file
    from envbuild.export.project_image import write_artifact
    from envbuild.lock.model import lock_digest

    plan, lock, store, reporter = ready.plan, ready.lock, workspace.store, workspace.reporter
    same_lock = earlier and earlier.lock == lock_digest(lock)  # its file contains the digest
    if earlier and same_lock and (found := find_unchanged_file(earlier, built.layers, reporter)):
        return built, found
    try:
        return built, write_artifact(plan, built, lock, store, reporter)
    except DamagedLayerError as error:  # they were moved aside
        for finding in error.findings:
            reporter.warn(f"{finding.message}: it is built again")
    built = obtain_and_build(ready, workspace)
    return built, write_artifact(plan, built, lock, store, reporter)


def make_twice(name: str, workspace: Workspace, options: Options) -> ImageRecord:
    """Make, then build every unit a second time with the same engine, and compare. Raises BuildError naming the first
    difference; the store keeps the first build."""
    from envbuild.build.engines.select import choose_engine
    from envbuild.build.plan.planner import make_plan
    from envbuild.build.reproducibility import rebuild_and_compare
    from envbuild.export.built_layout import own_images
    from envbuild.lock.fetch import fetch
    from envbuild.lock.request import lock_request
    from envbuild.lock.update import current_lock

    made = make(name, workspace, options)
    resolution = resolve_image(name, workspace)
    lock = current_lock(resolution, workspace)
    plan, request = make_plan(resolution, lock), lock_request(resolution)
    where, folder = request.source_places(), Path(request.folder)
    at = workspace
    own, contents = own_images(at), request.contents
    fetch(lock, at.store, at.site, at.reporter, where=where, folder=folder, own=own, contents=contents)
    engine = choose_engine(made.engine, workspace.store, workspace.reporter)
    rebuild_and_compare(plan, made.layers, engine, workspace.store, workspace.reporter, options.build)
    workspace.reporter.info(f"{name}: {counted(len(plan.units), 'unit')} built twice, all equal")
    return made
