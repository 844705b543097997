"""The job of a unit's process (JSON): its steps, the layers below it, its inputs, what it leaves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.build.plan.units import Input, Unit, environment
from envbuild.core.errors import EnvbuildError
from envbuild.core.store.store import Store, UnitRecord

if TYPE_CHECKING:
    from envbuild.squashfs.pack.format import PackFormat


def make_unit_job(
    unit: Unit,
    records: Mapping[str, UnitRecord],
    *,
    store: Store,
    work: Path,
    jobs: int,
    packs: Sequence[PackFormat],
    checked: Collection[str],
    keep_failed: bool,
    cache: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the job of `unit`, for `envbuild.build.engines.embedded.unit_process.build_unit`.

    records: the products of the units that it needs.
    work: its folder, which the process makes.
    jobs: compile jobs at once.
    packs: formats of the packs to make, where its layer is one of the image.
    checked: digests of blobs that need no check any more.
    keep_failed: leave the folder for a shell when a step fails.
    cache: of its compilers (`compiler_cache.unit_cache`).
    """
    inputs = [_input(item, records) for item in unit.inputs]
    forms: Sequence[PackFormat] = packs if unit.in_image else ()
    if store.is_shared and not forms:  # other users take every layer from its pack
        from envbuild.squashfs.pack.format import PackFormat

        forms = (PackFormat(),)
    lowers = [_layer(name, records) for name in unit.lowers]
    return {
        "store": str(store.root.resolve()),
        "work": str(work),
        "unit": unit.name,
        "steps": [step.command for step in unit.steps],
        "lowers": [str(store.layer_tree(diff_id).resolve()) for diff_id in lowers],
        "lower_layers": lowers,
        "build_only": [unit.lowers.index(name) for name in unit.build_only],
        "inputs": inputs,
        "checked": [sha256 for item in inputs for _, sha256 in item["blobs"] if sha256 in checked],
        "seed": list(unit.seed),
        "layers": list(unit.layers),
        "env": environment(unit, jobs),
        "keep": list(unit.keep),
        "epoch": unit.epoch,
        "product": unit.product.value,
        "packs": [[form.codec, form.level, form.block] for form in forms],
        "keep_failed": keep_failed,
        "cache": cache,
    }


def input_digests(job: Mapping[str, Any]) -> set[str]:
    """Return the digests of the inputs in a job."""
    return {sha256 for item in job["inputs"] for _, sha256 in item["blobs"]}


def _layer(name: str, records: Mapping[str, UnitRecord]) -> str:
    layer = records[name].layer
    if layer is None:
        raise EnvbuildError(f"unit {name} builds wheels and cannot be a lower layer")
    return layer.diff_id


def _input(item: Input, records: Mapping[str, UnitRecord]) -> dict[str, Any]:
    blobs = [(blob.name, blob.sha256) for blob in item.blobs]
    for name in item.units:
        blobs += records[name].wheels
    return {"name": item.name, "kind": item.kind, "blobs": blobs, "texts": list(item.texts)}
