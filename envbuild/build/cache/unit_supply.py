"""The supply of a build beside the store: units of caches, and the inputs of those that are to be built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.build.engines.base import BuildOptions, Engine
from envbuild.build.plan.units import Plan
from envbuild.lock.fetch import fetch
from envbuild.lock.model import Lock
from envbuild.lock.request import LockRequest
from envbuild.spec.workspace import Workspace

if TYPE_CHECKING:  # with a network client
    from envbuild.build.cache.open_cache import OpenCache


@dataclass(slots=True)
class UnitSupply:
    """The supply of one plan. `caches`: opened; None: those of the site. `cached`: names of the units that came from a
    cache."""

    engine: Engine
    plan: Plan
    lock: Lock
    request: LockRequest
    workspace: Workspace
    options: BuildOptions
    caches: Sequence[OpenCache] | None
    cached: set[str] = field(default_factory=set)

    def obtain(self) -> None:
        """Fetch the units that the store lacks and a cache has, then the inputs of those to build.

        Raises InputError, EngineError.
        """
        at = self.workspace
        if self.options.caches and self.engine.caches:
            from envbuild.build.cache.fill_store import fill_from_caches
            from envbuild.build.cache.open_cache import open_caches

            if self.caches is None:
                self.caches = open_caches(at.site, at.reporter)
            self.cached |= fill_from_caches(self.plan, at.store, self.caches, at.reporter, self.options).keys()
        units = self.engine.missing(self.plan, at.store, self.options)
        digests = None
        if len(units) < len(self.plan.units):
            digests = {blob.sha256 for unit in units for item in unit.inputs for blob in item.blobs}
        where, folder = self.request.source_places(), Path(self.request.folder)
        fetch(self.lock, at.store, at.site, at.reporter, digests=digests, where=where, folder=folder)

    def used_caches(self) -> tuple[str, ...]:
        """Return the caches of which a unit of the image, or one that such a unit was built on, was taken."""
        if not self.engine.caches:
            return ()
        keys, store = self.plan.keys(), self.workspace.store
        found = [
            self.options.find_unit(store, keys[unit.name], unit.product) for unit in self.plan.units if unit.in_image
        ]
        return tuple(sorted({cache for record in found if record for cache in record.caches}))
