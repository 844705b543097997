"""The supply of a build beside the store: units of caches, and the inputs of those that are to be built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.build.engines import resources
from envbuild.build.engines.base import BuildOptions, Engine
from envbuild.build.forecast import Forecast, make_forecast
from envbuild.build.plan.units import Plan, Unit
from envbuild.build.preflight import check_before_fetch
from envbuild.lock.base_image.own_images import OwnImages
from envbuild.lock.fetch import fetch, inputs_to_fetch, without_base
from envbuild.lock.inputs import Input
from envbuild.lock.model import Lock
from envbuild.lock.request import LockRequest
from envbuild.spec.workspace import Workspace

if TYPE_CHECKING:  # with a network client
    from envbuild.build.cache.open_cache import OpenCache


@dataclass(slots=True)
class UnitSupply:
    """The supply of one plan. `caches`: opened; None: those of the site. `cached`: names of the units that came from a
    cache. `forecast`: of the build, if there is something to build."""

    engine: Engine
    plan: Plan
    lock: Lock
    request: LockRequest
    workspace: Workspace
    options: BuildOptions
    caches: Sequence[OpenCache] | None
    own: OwnImages
    cached: set[str] = field(default_factory=set)
    forecast: Forecast | None = None

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
        if units:
            wanted = inputs_to_fetch(self.lock, at.store, digests=digests)
            self.check(units, without_base(self.lock, wanted, folder, self.own, at.site, at.store, at.reporter))
        contents = self.request.contents
        fetch(
            self.lock,
            at.store,
            at.site,
            at.reporter,
            digests=digests,
            where=where,
            folder=folder,
            own=self.own,
            base=not units,  # it was tried above
            contents=contents,
        )

    def check(self, units: Sequence[Unit], wanted: Sequence[Input]) -> None:
        """Report the forecast of the build of `units`, and check that it can begin. wanted: inputs that the store
        lacks. Raises InputError, EngineError."""
        workers = resources.units_at_once(self.options.workers)
        sizes = {entry.sha256: entry.size for entry in wanted}
        self.forecast = make_forecast(self.plan, units, sizes, self.workspace.store, workers)
        self.workspace.reporter.info(self.forecast.line())
        check_before_fetch(self.forecast, units, wanted, self.lock, self.request, self.workspace)
