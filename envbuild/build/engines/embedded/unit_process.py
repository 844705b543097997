"""The process of one unit (`envbuild.core.userns.process`): runs the steps in a box, makes the layer, answers, ends.

Its stdout and stderr are the unit's log.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.build.engines import prepare_inputs
from envbuild.build.engines.embedded.sandbox import Outcome, run_in_sandbox
from envbuild.build.engines.embedded.unit_root import ONE_ID, RootSpec
from envbuild.build.plan.units import Product
from envbuild.core.errors import BuildError
from envbuild.core.folder_removal import discard_folder
from envbuild.core.free_space import free_bytes
from envbuild.core.store.build_records import WHEEL_NAME
from envbuild.core.store.store import Store
from envbuild.core.text import counted, escaped
from envbuild.core.userns import file_calls
from envbuild.core.userns.id_maps import has_one_id

if TYPE_CHECKING:
    from envbuild.squashfs.pack.store_packs import PackSink

Job = dict[str, Any]
PROCESS = "the process of a unit"  # in messages


def build_unit(job: Job) -> Job:
    """Build a unit: seed or layers, steps, product."""
    began = time.monotonic()
    store, work = Store(Path(job["store"])), Path(job["work"])
    work.mkdir()
    try:
        if missing := [diff_id for diff_id in job["lower_layers"] if not store.has_tree(diff_id)]:
            from envbuild.squashfs.pack.unpack import unpack_layers

            print(f"envbuild: unpacking {counted(len(missing), 'layer')} that other users built", flush=True)
            unpack_layers(store=job["store"], diff_ids=missing)
        checked = prepare_inputs.prepare_inputs(store, job["inputs"], work / "inputs", job["checked"])
        (work / "upper").mkdir()
        if job["seed"]:
            from envbuild.build.engines import deb

            debs = dict(next(item for item in job["inputs"] if item["name"] == prepare_inputs.DEBS)["blobs"])
            deb.unpack_packages(
                (work / "inputs" / prepare_inputs.DEBS / name for name in job["seed"] if name in debs), work / "upper"
            )
        if job["layers"]:
            from envbuild.oci.layers.apply import apply_layers

            blobs = [work / "inputs" / prepare_inputs.LAYERS / name for name in job["layers"]]
            apply_layers(blobs, work / "upper", lambda text: print(f"envbuild: {text}", flush=True))
        # A box without a command would only be set up.
        steps = [["/bin/sh", "-c", step] for step in job["steps"]]
        outcome = run_in_sandbox(make_root_spec(job), steps, job["env"]) if steps else Outcome()
        for note in outcome.notes:
            print(f"envbuild: {note}", flush=True)
        if outcome.code:
            return describe_failure(job, outcome)
        answer = store_product(job, store, work)
        file_calls.sync(store.root)  # a record must not outlive its layer in a power cut
    except (OSError, BuildError):
        discard_folder(work)
        raise
    discard_folder(work)
    box = asdict(outcome.protection) if outcome.protection else {}
    return {"seconds": round(time.monotonic() - began, 3), "checked": checked, "box": box, **answer}


def make_root_spec(job: Job) -> RootSpec:
    names = tuple(item["name"] for item in job["inputs"])
    apt = any(item["name"] == prepare_inputs.DEBS and item["kind"] == "debian" for item in job["inputs"])
    return RootSpec(Path(job["work"]), tuple(job["lowers"]), names, apt=apt, cache=job["cache"])


def describe_failure(job: Job, outcome: Outcome) -> Job:
    free = free_bytes(Path(job["store"]))  # before the unit's files go: whether they filled the disk
    if not job["keep_failed"]:
        discard_folder(Path(job["work"]))
    return {"failed": [outcome.step, outcome.code], "free": free}


def store_product(job: Job, store: Store, work: Path) -> Job:
    """Return the layer or the wheels that the steps left."""
    if job["product"] == Product.WHEEL:
        return {"wheels": [[path.name, store.copy_blob(path)] for path in find_wheels(work / "out", job["unit"])]}
    from envbuild.oci.layers.layer import make_layer

    layer = work / "layer"
    layer.mkdir(mode=0o700)
    (work / "upper").rename(layer / "tree")
    record = make_layer(
        layer,
        [Path(path) for number, path in enumerate(job["lowers"]) if number not in job["build_only"]],
        store,
        epoch=job["epoch"],
        keep=job["keep"],
        unit=job["unit"],
        sinks=pack_sinks(job["packs"]) if job["packs"] else (),
    )
    return {"layer": asdict(record)}


def find_wheels(out: Path, unit: str) -> list[Path]:
    """Return the wheels in a folder that a step wrote, sorted. Raises BuildError for other things with such a name:
    a link leads to a file of this machine."""
    wheels = sorted(path for path in out.iterdir() if path.name.endswith(".whl"))
    for path in wheels:
        if not WHEEL_NAME.fullmatch(path.name):
            raise BuildError(
                f"unit {unit} made a wheel with the name {escaped(path.name)}",
                hint="letters, digits, and . _ - + ! are the characters of a wheel's name",
            )
        if not stat.S_ISREG(path.lstat().st_mode):
            raise BuildError(
                f"unit {unit} made {path.name}, which is not a regular file",
                hint="the build of the package must write the wheel itself, not a link to it",
            )
    return wheels


def pack_sinks(formats: Sequence[Sequence[Any]]) -> list[PackSink]:
    """Return what makes packs in `formats`, (codec, level, block) each."""
    from envbuild.squashfs.pack.format import PackFormat
    from envbuild.squashfs.pack.store_packs import PackSink  # with compressors, which not every unit needs

    return [PackSink(PackFormat(*item)) for item in formats]


def run_job(job: Job) -> Job:
    """Run commands in layers with a throw-away upper; also the shell in a failed step, whose folder is not touched."""
    work = Path(job["work"])
    work.mkdir()
    evidence = job.get("evidence")
    if evidence:
        (work / "inputs").symlink_to(Path(evidence) / "inputs")
    box = RootSpec(
        work,
        tuple(job["lowers"]),
        tuple(job["input_names"]),
        apt=job["apt"],
        build=bool(evidence),
        network=job["network"],
        sys=not evidence,
        image=job["image"],
        binds=tuple((source, target, read_only) for source, target, read_only in job["binds"]),
        one_id=has_one_id(),
    )
    try:
        outcome = run_in_sandbox(box, [job["argv"]], job["env"], interactive=True)
    finally:
        discard_folder(work)
    protection = asdict(outcome.protection) if outcome.protection else {}
    notes = [ONE_ID] if box.one_id else []
    return {"code": outcome.code, "notes": [*notes, *outcome.notes], "protection": protection}
