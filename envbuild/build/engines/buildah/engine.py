"""The buildah engine: the printed Containerfile, built by buildah 1.28 or later, its layers made canonical.

    command        the command line of buildah: own storage in the store, no network, nothing left behind
    import_layers  the layers of a finished image, through envbuild's clean list and packer
    error_report   from buildah's output to the unit and the step that failed

Its layers hold the same files as the embedded engine's, but not always with the same times, and the parts of the venv
are one layer: another class of digests, so units are recorded under keys of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from envbuild.build.engines.base import BuildOptions, BuildResult, Probe
from envbuild.build.plan.units import Plan, Unit
from envbuild.core.console import Reporter
from envbuild.core.store.store import LayerRecord, Store, UnitRecord

if TYPE_CHECKING:
    from envbuild.squashfs.pack.format import PackFormat


class Buildah:
    """An `Engine` (envbuild.build.engines.base). `packs`: squashfs packs to make of every layer that comes into the
    store."""

    name = "buildah"
    caches = False

    def __init__(self, packs: Sequence[PackFormat] = ()) -> None:
        self.packs = packs

    def probe(self, store: Store) -> Probe:
        """Build and run something tiny in the store's own folder."""
        from envbuild.build.engines.buildah.command import probe

        return probe(store)

    def missing(self, plan: Plan, store: Store, options: BuildOptions) -> Sequence[Unit]:
        """Return all units if one of the image is to be built: buildah gets the inputs of all."""
        from envbuild.build.plan.containerfile import image_layers

        keys = plan.keys()
        whole = not options.rebuild and all(store.unit(buildah_key(keys[name])) for name in set(image_layers(plan)))
        return () if whole else plan.units

    def build(self, plan: Plan, store: Store, reporter: Reporter, options: BuildOptions) -> BuildResult:
        """Build what the store does not have. Raises BuildError, InputError, EngineError.

        Units run one after another, and a step that was built before comes from buildah's cache.
        """
        from envbuild.build.plan.containerfile import image_layers

        keys = {name: buildah_key(key) for name, key in plan.keys().items()}
        layers = image_layers(plan)
        names = tuple(dict.fromkeys(layers))

        def known() -> dict[str, LayerRecord]:
            found = {name: store.unit(keys[name]) for name in names}
            return {name: record.layer for name, record in found.items() if record and record.layer}

        have = {} if options.rebuild else known()
        if len(have) < len(names):
            with store.lock("buildah", lambda: reporter.info("another envbuild uses buildah in this store; waiting")):
                have = {} if options.rebuild else known()
                new = self._build(plan, store, reporter, options, layers, have)
            for layer in new:
                store.share_packs(layer.diff_id)
                if not options.rebuild:  # a second build is compared, and the first one remains
                    store.record_unit(UnitRecord(keys[layer.unit], layer.unit, layer))
            have |= {layer.unit: layer for layer in new}
            built = tuple(layer.unit for layer in new)
        else:
            built = ()
        reused = tuple(name for name in names if name not in built)
        return BuildResult(self.name, tuple(have[name] for name in names), built, reused)

    def _build(
        self,
        plan: Plan,
        store: Store,
        reporter: Reporter,
        options: BuildOptions,
        layers: Sequence[str],
        have: dict[str, LayerRecord],
    ) -> list[LayerRecord]:
        """Run buildah, import the layers that the store lacks."""
        from envbuild.build.engines.build_context import write_context
        from envbuild.build.engines.buildah.command import Runner
        from envbuild.build.engines.buildah.import_layers import import_layers
        from envbuild.core.userns.call import call
        from envbuild.squashfs.pack.format import PackFormat

        with contextlib.ExitStack() as stack:
            work = stack.enter_context(store.workdir())
            reporter.start("buildah", f"{plan.image}: {len(plan.units)} units with buildah")
            stack.callback(reporter.finish, "buildah")
            runner = Runner.open(store, work)
            runner.forget_killed()
            if options.rebuild:
                runner = stack.enter_context(runner.empty_storage())
            packs = self.packs or ([PackFormat()] if store.is_shared else [])
            log = store.new_log("buildah", plan.keys()[plan.units[-1].name])
            write_context(plan, store, work / "context")
            image = runner.build(plan, work / "context", log, reporter, options)
            reporter.note("buildah", "reading the layers")
            archive = runner.save(image, work / "image.tar")
            made = call(
                import_layers,
                store=str(store.root.resolve()),
                work=str(work.resolve()),
                archive=str(archive.resolve()),
                units=list(layers),
                have={name: layer.diff_id for name, layer in have.items()},
                epoch=plan.epoch,
                packs=[asdict(form) for form in packs],
            )
            return [record for value in made if (record := LayerRecord.parse(value))]


def buildah_key(key: str) -> str:
    """Return the key under which this engine records the unit of `key`."""
    return hashlib.sha256(f"buildah {key}".encode()).hexdigest()
