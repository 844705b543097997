"""The embedded engine: units in namespaces, without a daemon, without installation, without network.

unit_process  the process of one unit: runs its steps in a box (sandbox), makes the layer (envbuild.oci.layers.layer)
build_plan    what the store lacks, and the layers of the image when it is built
scheduler     which units run when, and what is recorded
probe         whether it works here, by a trial
run_command   a command in an image or a failed unit
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from envbuild.build.engines.base import BuildOptions, BuildResult, Probe
from envbuild.build.plan.units import Plan, Unit
from envbuild.core.console import Reporter
from envbuild.core.store.store import Store

if TYPE_CHECKING:
    from envbuild.squashfs.pack.format import PackFormat


class Embedded:
    """An `Engine` (envbuild.build.engines.base). `packs`: squashfs packs to make of every image layer while it is read
    for its digest."""

    name = "embedded"
    caches = True

    def __init__(self, packs: Sequence[PackFormat] | None = None) -> None:
        self.packs = packs

    def probe(self, store: Store) -> Probe:
        """Try everything that a build needs, in the store's own folder."""
        from envbuild.build.engines.embedded.probe import probe_machine

        return probe_machine(store)

    def missing(self, plan: Plan, store: Store, options: BuildOptions) -> Sequence[Unit]:
        """Return the units that a build has to build."""
        from envbuild.build.engines.embedded.build_plan import find_missing_units

        return find_missing_units(plan, plan.keys(), store, options, {})

    def build(self, plan: Plan, store: Store, reporter: Reporter, options: BuildOptions) -> BuildResult:
        """Build what the store does not have. Call it from the main thread. Raises BuildError, InputError,
        EngineError."""
        from envbuild.build.engines.embedded.build_plan import build_plan
        from envbuild.squashfs.pack.format import PackFormat

        return build_plan(plan, store, reporter, options, (PackFormat(),) if self.packs is None else self.packs)
