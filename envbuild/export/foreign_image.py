"""Conversion of a third-party image: layers → packs in the store → a squashfs file.

Each layer is read once from its source and compressed while it is read. Its pack is stored under the layer's own
digest, so that the next image with this layer, from any source, finds it. An interrupted run resumes at the first layer
that has no pack.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from envbuild.core.console import Reporter
from envbuild.core.digest import file_digest
from envbuild.core.errors import InputError, VerifyError
from envbuild.core.store.records import is_unchanged, read_record, record_path, write_record
from envbuild.core.text import amount, printable
from envbuild.export.artifact_link import free_name, link_reference
from envbuild.export.drop_damaged import write_again_if_damaged
from envbuild.export.options import ExportOptions
from envbuild.export.pack_layers import LayerPacker, PackedLayer
from envbuild.export.progress import Progress, track_export
from envbuild.export.project_image import SquashfsFile
from envbuild.export.squashfs_image import WRITER
from envbuild.oci.sources.base import SourceImage
from envbuild.oci.sources.open import open_source
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.pack.store_packs import pack_path

SHA256 = re.compile(r"([0-9a-f]{64})?")
MOST = 1 << 63  # bytes of a file


@dataclass(frozen=True, slots=True)
class ConvertedImage:
    """A converted image. `identity` names its content: the digest of its configuration."""

    artifact: SquashfsFile
    reference: str
    origin: str
    identity: str
    layers: tuple[PackedLayer, ...]
    seconds: float
    up_to_date: bool = False


def convert_image(source: str, workspace: Workspace, options: ExportOptions) -> ConvertedImage:
    """Write the image `source` as squashfs to the output of `options`, or into the store's artifacts.

    In the store the file is ``NAME-<identity 12>.sqsh``, with the link ``NAME.sqsh``.

    Raises the errors of `open_source`, InputError with every finding for layers that are not available, unreadable or
    not trusted, InputError for an image that could not start, and VerifyError for one with another manifest than the
    options name, of which nothing is written.
    """
    began, out, manifest = time.monotonic(), options.output, options.manifest
    site, store, platform, keep = workspace.site, workspace.store, options.platform, options.keep_layers
    with (
        track_export(source, out.path if out else None, workspace) as progress,
        open_source(source, site, store, platform, keep=keep, manifest=manifest) as image,
    ):
        if manifest and image.manifest != manifest:
            raise VerifyError(f"{image.reference} was changed after it was compared", hint="run the command again")
        return convert_open_image(image, progress, options, began)


def convert_open_image(image: SourceImage, progress: Progress, options: ExportOptions, began: float) -> ConvertedImage:
    """Write an open image as squashfs, as `convert_image` does. `began`: of the command, by the monotonic clock."""
    workspace, out = progress.workspace, options.output
    for line in image.warnings:
        workspace.reporter.warn(line)
    if not image.layers:
        raise InputError(f"{image.reference} has no layers", hint="choose another image")
    image = replace(image, name=free_name(image.name, workspace))
    name = f"{image.name}-{image.identity[7:19]}{options.suffix}.sqsh"
    record = None if out else conversion_record(image, options, workspace)
    done = read_conversion(record) if record else None
    sha256 = done.artifact.sha256 if done else ""
    whole = done and (not sha256 or is_unchanged(done.artifact.path, sha256, workspace.reporter))
    if record and done and whole:
        if options.sha256 and not done.artifact.sha256:
            done = replace(done, artifact=replace(done.artifact, sha256=file_digest(done.artifact.path)))
            write_conversion(record, done)
        if options.link:
            link_reference(done.artifact.path, image.name, image.reference, workspace)
        return replace(done, reference=image.reference, origin=image.origin)  # the same content, perhaps elsewhere
    path = progress.output = out.file(name) if out else workspace.store.root / "artifacts" / name

    def write() -> tuple[SquashfsFile, tuple[PackedLayer, ...]]:
        packing = LayerPacker(image, workspace, options)
        direct = not options.cache and not image.stream
        return packing.write_directly(path) if direct else packing.write_from_packs(path)

    packs = [pack_path(workspace.store, layer.diff_id, options.pack_format) for layer in image.layers]
    artifact, layers = write_again_if_damaged(write, packs if options.cache else (), workspace.reporter)
    artifact = log_repairs(artifact, image, workspace.reporter)
    seconds = round(time.monotonic() - began, 1)
    done = ConvertedImage(artifact, image.reference, image.origin, image.identity, layers, seconds)
    if record:
        if options.link:
            link_reference(path, image.name, image.reference, workspace)
        write_conversion(record, done)
    return done


def log_repairs(artifact: SquashfsFile, image: SourceImage, reporter: Reporter) -> SquashfsFile:
    """Log every repair; return the artifact with all of them."""
    messages = (*image.notes, *artifact.messages)
    for line in messages:
        reporter.info(f"  {line}")
    reporter.info(f"squashfs {artifact.path.name}: {amount(artifact.size)}")
    return replace(artifact, messages=messages)


# records of earlier conversions
def conversion_record(image: SourceImage, options: ExportOptions, workspace: Workspace) -> Path:
    """Return the file of the record of a conversion into the store."""
    image = replace(image, name=free_name(image.name, workspace))
    return record_path(workspace.store, record_key_parts(image, options))


def record_key_parts(image: SourceImage, options: ExportOptions) -> Iterator[str]:
    """Yield what decides the bytes beside envbuild's own code."""
    yield from (image.identity, image.name, *image.notes)
    yield from (layer.diff_id for layer in image.layers)
    yield from (repr(options.pack_format), repr((options.keep_owners, options.keep_dev)), str(WRITER))


def write_conversion(record: Path, done: ConvertedImage) -> None:
    """Write the record of a conversion: the artifact preserves its packs while a link points at it."""
    artifact = {**asdict(done.artifact), "artifact": str(done.artifact.path)}
    del artifact["path"]
    names = {"reference": done.reference, "origin": done.origin, "identity": done.identity}
    write_record(record, {**artifact, **names, "layers": [layer.diff_id for layer in done.layers]})


def read_conversion(record: Path) -> ConvertedImage | None:
    """Return the result of an earlier run, if its file is unchanged; else None."""
    made = read_record(record)
    if made is None:
        return None
    try:
        texts = made["sha256"], made["reference"], made["origin"], made["identity"]
        size, messages = made["size"], tuple(map(printable, made["messages"]))
    except (KeyError, TypeError):  # a record of something else
        return None
    if not all(isinstance(text, str) and printable(text) == text for text in texts):
        return None  # another member of a group's store may have written it
    sha256, reference, origin, identity = texts
    if not isinstance(size, int) or not 0 <= size < MOST or not SHA256.fullmatch(sha256):
        return None
    artifact = SquashfsFile(Path(made["artifact"]), sha256, size, messages)
    layers = tuple(PackedLayer(diff_id, 0, True) for diff_id in made["layers"])
    return ConvertedImage(artifact, reference, origin, identity, layers, 0.0, True)
