"""The step plan → store: the units that the store lacks and a cache has are fetched, several at a time.

Only units that the image or a unit to build needs are searched: what a fetched unit was built on is not fetched.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from envbuild.build.cache.open_cache import OpenCache
from envbuild.build.cache.take_unit import FoundUnit, find_unit, take_unit
from envbuild.build.cache.unit_document import NewerFormatError, RefusedUnitError
from envbuild.build.engines.base import BuildOptions
from envbuild.build.plan.units import Plan
from envbuild.core.console import Reporter
from envbuild.core.store.store import Store, UnitRecord
from envbuild.core.text import amount, counted
from envbuild.net.download import Transfer
from envbuild.squashfs.pack.workers import Workers

PARALLEL = 8  # units that are searched and fetched at a time
TASK = "caches"


@dataclass(slots=True)
class Filling:
    """One search for the units of a plan. `keys`: unit → its key; `workers`: what compresses their
    layers; `taken`: unit → its record."""

    plan: Plan
    store: Store
    caches: Sequence[OpenCache]
    reporter: Reporter
    options: BuildOptions
    keys: Mapping[str, str]
    workers: Workers
    taken: dict[str, UnitRecord] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    guard: threading.Lock = field(default_factory=threading.Lock)
    done: int = 0
    total: int = 0

    def run(self) -> None:
        """Fetch what the store lacks. Raises EngineError."""
        keys = self.keys
        wanted = [unit.name for unit in self.plan.units if unit.in_image]
        seen: set[str] = set()
        pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="cache")
        try:
            while wanted := [
                name
                for name in dict.fromkeys(wanted)
                if name not in seen and not self.options.find_unit(self.store, keys[name], self.plan.unit(name).product)
            ]:
                seen.update(wanted)
                futures = {name: pool.submit(self.obtain, name, keys[name]) for name in wanted}
                wait(futures.values(), return_when=FIRST_EXCEPTION)
                missing = [name for name, future in futures.items() if future.done() and not future.result()]
                wanted = [name for unit in missing for name in self.plan.needs(self.plan.unit(unit))]
        finally:
            self.stop.set()
            pool.shutdown(cancel_futures=True)

    def obtain(self, name: str, key: str) -> bool:
        """Take a unit from the first cache that has it; return whether one had it."""
        for cache in self.caches:
            try:
                found = find_unit(cache, key)
                record = self.take(found, name) if found else None
            except RefusedUnitError as error:
                cache.refused.add(key)
                self.reporter.warn(f"the unit {name} of the cache {cache.name} is refused: {error} (key {key})")
                continue
            except NewerFormatError:
                cache.leave("a newer envbuild wrote its units", "update envbuild")
                continue
            if record:
                with self.guard:
                    self.taken[name] = record
                self.reporter.info(f"{name}: from the cache {cache.name}")
                return True
        return False

    def take(self, found: FoundUnit, name: str) -> UnitRecord | None:
        """Fetch a unit. Raises RefusedUnitError, EngineError."""
        pack = found.document.pack
        written = ((pack.digest, pack.size),) if pack else ()  # beside what is fetched
        self.store.check_space([*((part.digest, part.size) for part in found.document.blobs), *written])
        self.add(0, found.size)
        transfer = Transfer(found.cache.transport, self.store, self.add, stop=self.stop)
        return take_unit(found, self.plan.unit(name), self.store, transfer, self.workers)

    def add(self, size: int, total: int = 0) -> None:
        with self.guard:
            self.done += size
            self.total += total
            self.reporter.advance(TASK, self.done, self.total)


def fill_from_caches(
    plan: Plan, store: Store, caches: Sequence[OpenCache], reporter: Reporter, options: BuildOptions
) -> dict[str, UnitRecord]:
    """Fetch the units that the store lacks from the first cache that has each. Return unit → record of those.

    A cache that fails is reported, and the unit is built. Raises EngineError if the store is full.
    """
    if not caches:
        return {}
    keys = plan.keys()
    if all(options.find_unit(store, keys[unit.name], unit.product) for unit in plan.units if unit.in_image):
        return {}
    names = (f"{cache.name} ({'signed' if cache.setting.keys else 'unsigned'})" for cache in caches)
    reporter.start(TASK, f"looking for units in {', '.join(names)}")
    try:
        with Workers() as workers:
            work = Filling(plan, store, caches, reporter, options, keys, workers)
            work.run()
    finally:
        reporter.finish(TASK)
    if work.taken:
        reporter.info(f"{counted(len(work.taken), 'unit')} from caches, {amount(work.done)}")
    return work.taken
