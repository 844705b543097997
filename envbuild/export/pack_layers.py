"""Packing of a third-party image: its layers, from their source, into packs, and the packs into a squashfs file.

Several layers are read at a time, each once. A pack enters the store only after the digest of its layer was verified.
If another process writes the same pack at the same moment, this one waits for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from envbuild.core.errors import Finding, InputError
from envbuild.core.store.permissions import move_into_store, record_use
from envbuild.core.store.store import Store
from envbuild.core.text import amount
from envbuild.export.layer_reader import TASK, LayerReader
from envbuild.export.options import ExportOptions
from envbuild.export.project_image import SquashfsFile, write_from_packs, written_squashfs
from envbuild.export.squashfs_image import complete_image, merge_lowest
from envbuild.export.write_errors import raise_write_errors
from envbuild.oci.sources.base import SourceImage, SourceLayer
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.pack.store_packs import pack_path
from envbuild.squashfs.pack.workers import Workers, trim_heap
from envbuild.squashfs.pack.writer import PackWriter
from envbuild.squashfs.write.direct_image import DirectImage

PARALLEL = 3  # layers that are read at a time (as by Docker): a registry limits the rate of one connection
SMALL = 64 << 20  # bytes of layers that are packed in about the time that it takes to merge the others


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """The result for a layer: `bytes` read of it (0: it was packed before), `cached`."""

    diff_id: str
    bytes: int
    cached: bool


@dataclass(slots=True)
class LayerPacker:
    """The layers of one image on their way into packs."""

    image: SourceImage
    workspace: Workspace
    options: ExportOptions
    store: Store = field(init=False)
    reader: LayerReader = field(init=False)
    workers: Workers = field(init=False)  # of all layers together

    def __post_init__(self) -> None:
        self.store, self.workers = self.workspace.store, Workers(self.options.jobs)
        self.reader = LayerReader(self.workspace.reporter)

    def write_from_packs(self, path: Path) -> tuple[SquashfsFile, tuple[PackedLayer, ...]]:
        """Write the file `path` from the packs of all layers, which remain in the store.

        A source that returns its layers in an order of its own always needs packs; without `cache` they are deleted.
        """
        image, form, reporter = self.image, self.options.pack_format, self.workspace.reporter
        with contextlib.ExitStack() as stack:
            if not self.options.cache:
                self.store = Store.open(stack.enter_context(self.store.workdir()) / "store")
            below = stack.enter_context(ThreadPoolExecutor(1)).submit(merge_lowest, self.lowest_packs())
            layers = self.pack_missing()
            packs = [pack_path(self.store, layer.diff_id, form) for layer in image.layers]
            reporter.start("squashfs", f"squashfs {path.name}")
            stack.callback(reporter.finish, "squashfs")
            reporter.advance("squashfs", 0, sum(pack.stat().st_size for pack in packs))
            artifact = write_from_packs(
                packs,
                image.config,
                path,
                self.options,
                epoch=image.created,
                evidence=foreign_evidence(image),
                foreign=True,
                begun=below.result(),
            )
        return artifact, layers

    def lowest_packs(self) -> list[Path]:
        """Return the cached packs of the lowest layers, when little is to be packed: they are merged meanwhile. Beside
        large layers their tree would only cost memory."""
        image, form = self.image, self.options.pack_format
        packs = [pack_path(self.store, layer.diff_id, form) for layer in image.layers]
        missing = [layer.size or SMALL for layer, pack in zip(image.layers, packs, strict=True) if not pack.is_file()]
        return list(takewhile(Path.is_file, packs)) if 0 < sum(missing) < SMALL else []

    def write_directly(self, path: Path) -> tuple[SquashfsFile, tuple[PackedLayer, ...]]:
        """Write the file `path` with its layers one after another; store nothing else."""
        image, form, reporter, jobs = self.image, self.options.pack_format, self.workspace.reporter, self.options.jobs
        self.reader.total, count = sum(layer.size for layer in image.layers), len(image.layers)
        read = []
        with (
            raise_write_errors(path),
            DirectImage(path, codec=form.codec, level=form.level, block=form.block, jobs=jobs) as direct,
        ):
            reporter.start(TASK, f"{image.reference}: {count} layers, {amount(self.reader.total)}")
            try:
                for layer in image.layers:
                    self.reader.report_done(count)
                    read.append(self.reader.read_layer(layer, direct.layer)[1])
            finally:
                reporter.finish(TASK)
            written = complete_image(
                direct, image.config, self.options, epoch=image.created, evidence=foreign_evidence(image), foreign=True
            )
        layers = [PackedLayer(layer.diff_id, size, False) for layer, size in zip(image.layers, read, strict=True)]
        return written_squashfs(written, self.options.sha256), tuple(layers)

    def pack_missing(self) -> tuple[PackedLayer, ...]:
        """Pack the layers that have no pack yet.

        Raises InputError with a finding for each layer that failed.
        """
        store, form, reporter = self.store, self.options.pack_format, self.workspace.reporter
        layers = {layer.diff_id: layer for layer in self.image.layers}  # the same layer may be listed twice
        wanted = {}
        for diff_id, layer in layers.items():
            path = pack_path(store, diff_id, form)
            if path.is_file():
                record_use(path)
            else:
                wanted[diff_id] = layer
        self.reader.total = sum(layer.size for layer in wanted.values())
        packed: dict[str, int] = {}
        count = len(layers)
        if len(wanted) < count:
            reporter.info(f"{count - len(wanted)} of {count} layers are packed already")
        if wanted:
            size = f", {amount(self.reader.total)}" if self.reader.total else ""
            reporter.start(TASK, f"{self.image.reference}: packing {len(wanted)} of {count} layers{size}")
            self.reader.report_done(len(wanted))
            try:
                with store.filled():
                    packed = (
                        self.pack_in_order(wanted)
                        if self.image.stream
                        else self.pack_in_parallel(list(wanted.values()))
                    )
            finally:
                self.workers.close()
                trim_heap()
                reporter.finish(TASK)
        return tuple(
            PackedLayer(layer.diff_id, packed.get(layer.diff_id, 0), layer.diff_id not in packed)
            for layer in self.image.layers
        )

    def pack_in_parallel(self, layers: Sequence[SourceLayer]) -> dict[str, int]:
        """Pack several layers at a time, the largest first: they decide when the last one is done."""
        ordered = sorted(layers, key=lambda layer: -layer.size)
        packed: dict[str, int] = {}
        findings: list[Finding] = []
        with ThreadPoolExecutor(min(PARALLEL, len(ordered)), thread_name_prefix="layer") as pool:
            futures = {pool.submit(self.pack_layer, layer): layer for layer in ordered}
            try:
                for future in as_completed(futures):
                    layer = futures[future]
                    try:
                        read = future.result()
                    except InputError as error:  # the faults of the other layers are reported, too
                        findings += error.findings
                        continue
                    if read:
                        packed[layer.diff_id] = read
                    self.reader.report_done(len(ordered))
            except BaseException:
                self.reader.stop.set()  # a full store, an interruption: the others need not continue
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        if findings:
            raise InputError.of(findings)
        return packed

    def pack_layer(self, layer: SourceLayer) -> int:
        """Pack a layer whose digest is known; return the bytes read, 0 when another process wrote the pack."""
        store, path = self.store, pack_path(self.store, layer.diff_id, self.options.pack_format)
        with store.lock(f"pack-{path.name}", self.report_waiting):
            if path.is_file():
                return 0
            with store.workdir() as work:
                _, read = self.reader.read_layer(layer, lambda: self.open_writer(work / "pack"))
                move_into_store(work / "pack", path)
            return read

    def pack_in_order(self, wanted: dict[str, SourceLayer]) -> dict[str, int]:
        """Pack one layer after another, in the order of a source that has an order of its own."""
        store, form = self.store, self.options.pack_format
        packed: dict[str, int] = {}
        count = len(wanted)
        assert self.image.stream is not None
        with self.image.stream() as layers:
            for layer in layers:
                if not wanted.keys() - packed.keys():
                    break
                if layer.diff_id and (layer.diff_id not in wanted or layer.diff_id in packed):
                    continue
                if layer.diff_id:
                    read = self.pack_layer(replace(layer, places=1))
                    packed[layer.diff_id] = read
                else:
                    with store.workdir() as work:
                        diff_id, read = self.reader.read_once(layer, self.open_writer(work / "pack"))
                        if diff_id in wanted and diff_id not in packed:
                            move_into_store(work / "pack", pack_path(store, diff_id, form))
                            packed[diff_id] = read
                self.reader.report_done(count)
        missing = [layer.name for diff_id, layer in wanted.items() if diff_id not in packed]
        if missing:
            raise InputError(
                f"{self.image.reference} came without {', '.join(missing)}", hint="pull or save the image again"
            )
        return packed

    def open_writer(self, path: Path) -> PackWriter:
        form = self.options.pack_format
        return PackWriter(path, codec=form.codec, level=form.level, block=form.block, jobs=self.workers)

    def report_waiting(self) -> None:
        self.workspace.reporter.info("another envbuild packs one of these layers: waiting for it")


def foreign_evidence(image: SourceImage) -> dict[str, Any]:
    """Return the evidence for the file: names of the image's content, which do not depend on its source."""
    return {
        "image": {
            "config": image.identity,
            "architecture": image.config.architecture,
            "created": image.created,
            "layers": [layer.diff_id for layer in image.layers],
        },
        "notes": list(image.notes),
    }
