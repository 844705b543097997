"""The interface of engines: an engine reports whether it can run here, and turns a plan into layers of the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # `make` without work loads this module for its options alone
    from envbuild.build.plan.units import Plan, Unit
    from envbuild.core.console import Reporter
    from envbuild.core.store.store import LayerRecord, Store, UnitRecord


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of trying an engine: `ok`, or the first thing that failed (`step`), why, and the fix to type.

    `caution`: what the user should know when this engine is used without being named.
    `code`: the errno of the system call that failed (0: none did).
    """

    engine: str
    ok: bool
    step: str = ""
    reason: str = ""
    fix: str = ""
    detail: str = ""  # e.g. "root", "subordinate ids 100000:65536", "inside buildah unshare"
    code: int = 0
    caution: str = ""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """`workers`: units at once; `jobs`: compile jobs for all of them together (0: from cores and memory)."""

    workers: int = 0
    jobs: int = 0
    shell_on_fail: bool = False
    rebuild: bool = False  # do not take units from the store (make --check)
    compiler_cache: bool = True  # of the site; engines that have none ignore it
    caches: frozenset[str] = frozenset()  # those of whose units the store's are used; none: only what was built here
    base_caches: tuple[str, ...] = ()  # of the images of the project that the image is based on

    def find_unit(self, store: Store, key: str, product: str) -> UnitRecord | None:
        """Return the record of a unit that the store has, unless it is of a cache that this build does not use.

        product: the kind of its product, ``layer`` or ``wheel``; another member of a group may have recorded any."""
        record = store.unit(key)
        fits = record and record.product == product and self.caches.issuperset(record.caches)
        return record if fits else None


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The layers of the image, bottom first, and what was done for it: unit names built now, and taken from the
    store. `caches`: those of which a unit of the image, or one that such a unit was built on, was taken, by the records
    that were used: another command may replace them."""

    engine: str
    layers: tuple[LayerRecord, ...]
    built: tuple[str, ...]
    reused: tuple[str, ...]
    caches: tuple[str, ...] = ()


class Engine(Protocol):
    """A runner of plans."""

    name: str
    caches: bool  # whether its units are recorded under the keys of the plan, which caches know

    def probe(self, store: Store) -> Probe:
        """Try everything that a build needs, in the store's own folder."""
        ...

    def missing(self, plan: Plan, store: Store, options: BuildOptions) -> Sequence[Unit]:
        """Return the units whose inputs a build needs."""
        ...

    def build(self, plan: Plan, store: Store, reporter: Reporter, options: BuildOptions) -> BuildResult:
        """Build what the store does not have. Raises BuildError, EngineError."""
        ...


def build_units(engine: Engine, plan: Plan, store: Store, reporter: Reporter, options: BuildOptions) -> BuildResult:
    """Build the units of a plan. Record for its layers by which caches the images below it were decided: a lock of an
    image above names these layers alone. Raises what `Engine.build` raises."""
    result = engine.build(plan, store, reporter, options)
    if options.base_caches and result.built:
        for layer in result.layers:
            if found := store.find_layer(layer.diff_id):
                store.record_built_with(layer, sorted({*found.built_with, *options.base_caches}))
    return result
