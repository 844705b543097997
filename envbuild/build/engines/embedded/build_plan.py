"""The build of a plan: find what the store lacks, build it, and return the layers of the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from envbuild.build.engines.base import BuildOptions, BuildResult
from envbuild.build.engines.embedded.sandbox import warn_without_filter
from envbuild.build.engines.embedded.scheduler import Schedule
from envbuild.build.plan.units import Plan, Unit
from envbuild.core.console import Reporter
from envbuild.core.store.store import Store, UnitRecord
from envbuild.core.userns.removal import remove_trees

if TYPE_CHECKING:
    from envbuild.squashfs.pack.format import PackFormat


def find_missing_units(
    plan: Plan, keys: dict[str, str], store: Store, options: BuildOptions, records: dict[str, UnitRecord]
) -> list[Unit]:
    """Return the units to build for the image, in the plan's order; those that the store has and the image or a unit to
    build uses go to `records`."""
    todo: set[str] = set()
    seen: set[str] = set()
    pending = [unit.name for unit in plan.units if unit.in_image]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        record = None if options.rebuild else options.find_unit(store, keys[name], plan.unit(name).product)
        if record:
            records[name] = record
        else:
            todo.add(name)
            pending += plan.needs(plan.unit(name))
    return [unit for unit in plan.units if unit.name in todo]


def build_plan(
    plan: Plan, store: Store, reporter: Reporter, options: BuildOptions, packs: Sequence[PackFormat]
) -> BuildResult:
    """Build a plan; see `envbuild.build.engines.base.Engine.build`."""
    keys = plan.keys()
    records: dict[str, UnitRecord] = {}
    built: list[str] = []
    if todo := find_missing_units(plan, keys, store, options, records):
        warn_without_filter(reporter)
        with store.filled(), store.workdir() as work:
            schedule = Schedule(plan, store, reporter, options, packs, work, keys, records)
            try:
                schedule.run(todo)
            finally:
                remove_trees(path for path in work.iterdir() if path.is_dir())
            built = schedule.built
    layers = []
    for unit in plan.units:
        if unit.in_image:
            layer = records[unit.name].layer
            assert layer is not None, unit.name
            layers.append(layer)
    reused = tuple(unit.name for unit in plan.units if unit.name in records and unit.name not in built)
    caches = {cache for unit in plan.units if unit.in_image for cache in records[unit.name].caches}
    return BuildResult("embedded", tuple(layers), tuple(built), reused, tuple(sorted(caches)))
