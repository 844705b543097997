"""Export of a project's image: layers of the store → a squashfs file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.core.console import Reporter
from envbuild.core.digest import file_digest
from envbuild.core.errors import DamagedLayerError, Finding
from envbuild.core.text import amount
from envbuild.export.options import ExportOptions

if TYPE_CHECKING:
    from envbuild.build.engines.base import BuildResult
    from envbuild.build.plan.units import Plan
    from envbuild.core.store.store import LayerRecord, Store
    from envbuild.export.squashfs_image import MergedPacks
    from envbuild.lock.model import Lock
    from envbuild.oci.config import ImageConfig
    from envbuild.squashfs.write.output_file import Stamp
    from envbuild.squashfs.write.writer import WrittenImage


@dataclass(frozen=True, slots=True)
class SquashfsFile:
    """A finished squashfs file. `sha256` is empty unless it was requested. `messages` are the repairs made for enroot,
    one line each. `stamp`: size and time of the file that this process wrote (None: not known), as another process
    may give its name to another file."""

    path: Path
    sha256: str
    size: int
    messages: tuple[str, ...] = ()
    stamp: Stamp | None = None


def write_artifact(plan: Plan, built: BuildResult, lock: Lock, store: Store, reporter: Reporter) -> SquashfsFile:
    """Write ``artifacts/NAME-<lock digest 12>-<configuration 8>.sqsh`` from the packs of the layers.

    The configuration names all layers: a file with other content, which verify may refuse, has another name than the
    one that jobs start, also if two commands make the image at once.
    """
    made = image_evidence(plan, built.layers, lock)["image"]
    out = store.root / "artifacts" / f"{plan.image}-{made['lock'][7:19]}-{made['config'][7:15]}.sqsh"
    return write_squashfs(plan, built.layers, lock, store, reporter, out, ExportOptions(sha256=True))


def write_squashfs(
    plan: Plan,
    layers: Sequence[LayerRecord],
    lock: Lock,
    store: Store,
    reporter: Reporter,
    out: Path,
    options: ExportOptions,
) -> SquashfsFile:
    """Write the image of `layers` (bottom first) to `out`, from packs; write the packs that are missing or damaged.

    Raises DamagedLayerError if a layer without a pack is damaged.
    """
    from envbuild.export.drop_damaged import write_again_if_damaged
    from envbuild.squashfs.pack.store_packs import pack_path

    evidence = image_evidence(plan, layers, lock)

    def write() -> SquashfsFile:
        packs = pack_layers(layers, store, reporter, out, options)
        reporter.start("squashfs", f"squashfs {out.name}: merging {len(packs)} layers")
        reporter.advance("squashfs", 0, sum(pack.stat().st_size for pack in packs))
        return write_from_packs(packs, plan.config, out, options, epoch=plan.epoch, evidence=evidence)

    packs = [pack_path(store, layer.diff_id, options.pack_format) for layer in layers]
    made = write_again_if_damaged(write, packs, reporter)
    reporter.finish("squashfs", f"squashfs {out.name}: {amount(made.size)}")
    return made


def image_evidence(plan: Plan, layers: Sequence[LayerRecord], lock: Lock) -> dict[str, Any]:
    """Return the evidence for the file of an image of the project."""
    from envbuild.lock.model import lock_digest
    from envbuild.oci.config import config_json

    return {
        "image": {
            "name": plan.image,
            "lock": lock_digest(lock),
            "config": f"sha256:{hashlib.sha256(config_json(layers, plan.config, plan.epoch)).hexdigest()}",
            "architecture": plan.config.architecture,
            "created": plan.epoch,
            "layers": [layer.diff_id for layer in layers],
        }
    }


def pack_layers(
    layers: Sequence[LayerRecord], store: Store, reporter: Reporter, out: Path, options: ExportOptions
) -> list[Path]:
    """Return the packs of `layers`; write those that are missing. Raises DamagedLayerError with every damaged layer."""
    from envbuild.squashfs.pack.store_packs import pack_layer

    reporter.start("packs", f"squashfs {out.name}")
    packs, done, total = [], 0, sum(layer.size for layer in layers)
    findings: list[Finding] = []
    for layer in layers:
        try:
            packs.append(pack_layer(store, layer, options.pack_format, options.jobs))
        except DamagedLayerError as error:
            findings += error.findings
        done += layer.size
        reporter.advance("packs", done, total)
    reporter.finish("packs")
    if findings:
        raise DamagedLayerError.of(findings)
    return packs


def write_from_packs(
    packs: Sequence[Path],
    config: ImageConfig,
    out: Path,
    options: ExportOptions,
    *,
    epoch: int,
    evidence: Mapping[str, Any],
    foreign: bool = False,
    begun: MergedPacks | None = None,
) -> SquashfsFile:
    """Write an image from packs (bottom first), with its sha256 if `options` request it.

    For the other parameters see `envbuild.export.squashfs_image`.
    """
    from envbuild.export.squashfs_image import export_squashfs

    written = export_squashfs(packs, config, out, options, epoch=epoch, evidence=evidence, foreign=foreign, begun=begun)
    return written_squashfs(written, options.sha256)


def written_squashfs(written: WrittenImage, sha256: bool = True) -> SquashfsFile:
    """Return the squashfs file that was written.

    `sha256`: compute the digest; reading the whole file again costs more than merging cached packs.
    """
    digest = written.sha256 or file_digest(written.path) if sha256 else ""
    return SquashfsFile(written.path, digest, written.size, written.messages, written.stamp)


def describe_squashfs(artifact: SquashfsFile, note: str = "") -> str:
    """Return lines with the path of a file, its sha256 with a `note`, and its size. The command that starts it depends
    on the site (`envbuild.launch.start_line`)."""
    digest = f"  sha256: {artifact.sha256}{note}\n" if artifact.sha256 else ""
    return f"{artifact.path}\n{digest}  size:   {amount(artifact.size)}"
