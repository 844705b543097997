"""The docker engine: the units of a plan, built by the BuildKit of a Docker Engine, their layers made canonical.

    daemon        the Docker Engine of this machine: reached, new enough, local
    program       the program that starts BuildKit in it
    stages        the Containerfile for BuildKit, and which layers of a stage are the unit's own
    builder       one build: no network, no login, no proxy
    import_units  what the steps of each stage wrote, through envbuild's clean list and packer
    error_report  from BuildKit's output to the unit and the step that failed

A layer has the same bytes as the embedded engine's, as far as steps do not depend on what differs between the two boxes
(the name of the machine, system calls). That is not proved for every step, so its units have keys of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from envbuild.build.engines.base import BuildOptions, BuildResult, Probe
from envbuild.build.plan.units import Plan, Unit
from envbuild.core.console import Reporter
from envbuild.core.store.store import LayerRecord, Store, UnitRecord

if TYPE_CHECKING:
    from envbuild.squashfs.pack.format import PackFormat


class Docker:
    """An `Engine` (envbuild.build.engines.base). `packs`: squashfs packs to make of every layer that comes into the
    store."""

    name = "docker"
    caches = False

    def __init__(self, packs: Sequence[PackFormat] = ()) -> None:
        self.packs = packs

    def probe(self, store: Store) -> Probe:
        """Reach the daemon and find the program; nothing is built."""
        from envbuild.build.engines.docker.daemon import probe

        return probe()

    def missing(self, plan: Plan, store: Store, options: BuildOptions) -> Sequence[Unit]:
        """Return all units if one of the image is to be built: BuildKit gets the inputs of all."""
        from envbuild.build.engines.docker.stages import target_units

        keys = plan.keys()
        whole = not options.rebuild and all(store.unit(docker_key(keys[unit.name])) for unit in target_units(plan))
        return () if whole else plan.units

    def build(self, plan: Plan, store: Store, reporter: Reporter, options: BuildOptions) -> BuildResult:
        """Build what the store does not have. Raises BuildError, InputError, EngineError."""
        from envbuild.build.engines.docker.stages import target_units

        keys = {name: docker_key(key) for name, key in plan.keys().items()}
        names = [unit.name for unit in target_units(plan)]

        def known() -> dict[str, LayerRecord]:
            found = {name: store.unit(keys[name]) for name in names}
            return {name: record.layer for name, record in found.items() if record and record.layer}

        have = {} if options.rebuild else known()
        built: list[str] = []
        if len(have) < len(names):
            with store.lock(
                "docker", lambda: reporter.info("another envbuild builds with Docker for this store; waiting")
            ):
                have = {} if options.rebuild else known()
                if len(have) < len(names):
                    for layer in self._build(plan, store, reporter, options, have):
                        store.share_packs(layer.diff_id)
                        if not options.rebuild:  # a second build is compared, and the first one remains
                            store.record_unit(UnitRecord(keys[layer.unit], layer.unit, layer))
                        have[layer.unit] = layer
                        built.append(layer.unit)
        layers = tuple(have[name] for name in names)
        return BuildResult(self.name, layers, tuple(built), tuple(name for name in names if name not in built))

    def _build(
        self, plan: Plan, store: Store, reporter: Reporter, options: BuildOptions, have: dict[str, LayerRecord]
    ) -> list[LayerRecord]:
        """Build with BuildKit, import the layers that the store lacks."""
        from envbuild.build.engines.build_context import write_context
        from envbuild.build.engines.docker import stages
        from envbuild.build.engines.docker.builder import CONTAINERFILE, Builder
        from envbuild.build.engines.docker.daemon import find_daemon
        from envbuild.build.engines.docker.import_units import import_units
        from envbuild.core.userns.call import call
        from envbuild.squashfs.pack.format import PackFormat

        targets, listed = stages.target_units(plan), stages.list_stages(plan)
        packs = self.packs or ([PackFormat()] if store.is_shared else [])
        images: dict[str, str] = {}
        with store.workdir() as work:
            log = store.new_log("docker", plan.keys()[plan.units[-1].name])
            builder = Builder(find_daemon(), store, work.resolve(), log)
            reporter.start("docker", f"{plan.image}: {len(plan.units)} units with Docker")
            try:
                write_context(plan, store, work / "context")
                stages.write_stubs(plan, work / "context")
                (work / "context" / CONTAINERFILE).write_text(stages.docker_containerfile(plan))
                fresh: set[str] = set()  # built now; the cache of BuildKit has them
                for unit in reversed(targets):
                    if unit.name not in have:
                        again = replace(options, rebuild=options.rebuild and unit.name not in fresh)
                        images[unit.name] = builder.build(plan, work / "context", unit.name, reporter, again)
                        fresh |= stages.needed_units(plan, unit)
                reporter.note("docker", "reading the layers")
                archive = builder.save([*images.values()], work / "images.tar")
                made = call(
                    import_units,
                    store=str(store.root.resolve()),
                    work=str(work.resolve()),
                    archive=str(archive.resolve()),
                    units=[
                        {
                            "name": unit.name,
                            "image": images.get(unit.name, ""),
                            "roles": [str(role) for role in listed[unit.name].roles],
                            "lowers": stages.packed_over(plan, unit),
                            "keep": list(unit.keep),
                            "epoch": unit.epoch,
                        }
                        for unit in targets
                    ],
                    have={name: layer.diff_id for name, layer in have.items()},
                    packs=[asdict(form) for form in packs],
                )
            finally:
                builder.remove([*images.values()])
                reporter.finish("docker")
            return [record for value in made if (record := LayerRecord.parse(value))]


def docker_key(key: str) -> str:
    """Return the key under which this engine records the unit of `key`."""
    return hashlib.sha256(f"docker {key}".encode()).hexdigest()
