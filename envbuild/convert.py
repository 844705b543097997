"""Convert: an image that somebody else made → packs in the store → a squashfs file.

Each layer is read once, from wherever it is, and compressed while it is read; its pack stays in the store under the
layer's own digest, so that the next image with this layer, from any place, finds it. A run that was killed goes on at
the first layer that has no pack.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from envbuild.console import Talk
from envbuild.core.text import amount
from envbuild.errors import InputError
from envbuild.export import Artifact, digest_of, link_to, stamped
from envbuild.oci.source import SourceImage
from envbuild.oci.sources import open_source
from envbuild.outfile import Output
from envbuild.packing import Layer, Options, Packing
from envbuild.progress import tracked
from envbuild.squashfs.export import WRITER
from envbuild.store import read_json, stamp, write_json
from envbuild.workspace import Workspace

__all__ = ["Converted", "Options", "convert"]


@dataclass(frozen=True, slots=True)
class Converted:
    """A finished file. `identity` names the image's content: the digest of its configuration."""

    artifact: Artifact
    reference: str
    origin: str
    identity: str
    layers: tuple[Layer, ...]
    seconds: float
    up_to_date: bool = False


def convert(source: str, workspace: Workspace, options: Options, out: Output | None = None) -> Converted:
    """Write the image `source` as squashfs to `out`, or into the store's artifacts (``NAME-<identity 12>.sqsh``, and
    the link ``NAME.sqsh``). Raises what `open_source` does, InputError for layers that cannot be had, read or trusted,
    with every finding, and for an image that could not start."""
    began = time.monotonic()
    store = workspace.store
    with (
        store.lock("gc", shared=True),
        tracked(source, out.path if out else None, workspace) as progress,
        open_source(source, workspace.site, store, options.platform, keep=options.keep_layers) as image,
    ):
        if not image.layers:
            raise InputError(f"{image.reference} has no layers", hint="choose another image")
        # an image of the project has that link for itself
        name = f"{image.name}-image" if image.name in workspace.project.images() else image.name
        image = replace(image, name=name)
        name = f"{name}-{image.identity[7:19]}{suffix(options)}.sqsh"
        record = None if out else store.root / "images" / f"{record_name(image, options)}.json"
        if record and (done := remembered(record)):
            if options.sha256 and not done.artifact.sha256:
                done = replace(done, artifact=replace(done.artifact, sha256=digest_of(done.artifact.path)))
                remember(record, done)
            link_to(done.artifact.path, image.name)
            return done
        path = progress.output = out.file(name) if out else store.root / "artifacts" / name
        packing = Packing(image, progress.workspace, options)
        artifact, layers = packing.straight(path) if not options.cache and not image.stream else packing.by_packs(path)
        artifact = told(artifact, image, workspace.talk)
        done = Converted(
            artifact,
            image.reference,
            image.origin,
            image.identity,
            layers,
            round(time.monotonic() - began, 1),
        )
        if record:
            link_to(path, image.name)
            remember(record, done)
    return done


def told(artifact: Artifact, image: SourceImage, talk: Talk) -> Artifact:
    """Say every repair; returns the artifact with all of them."""
    messages = (*image.notes, *artifact.messages)
    for line in messages:
        talk.say(f"  {line}")
    talk.say(f"squashfs {artifact.path.name}: {amount(artifact.size)}")
    return replace(artifact, messages=messages)


# what was made before
def suffix(options: Options) -> str:
    """What a file's name says of options that are not the usual ones."""
    usual, form = Options(), options.form
    words = []
    if form != usual.form:
        words.append(form.codec if form.codec == "none" else f"{form.codec}{form.level}")
        if form.block != usual.form.block:
            words.append(f"{form.block >> 10}K")
    if options.manner.keep_owners:
        words.append("owners")
    if options.manner.keep_dev:
        words.append("dev")
    return "".join(f"-{word}" for word in words)


def record_name(image: SourceImage, options: Options) -> str:
    """What all that decides the bytes is remembered under."""
    what = (image.identity, image.name, [layer.diff_id for layer in image.layers], asdict(options.form))
    return hashlib.sha256(repr((what, asdict(options.manner), WRITER, image.notes, stamped())).encode()).hexdigest()


def remember(record: Path, done: Converted) -> None:
    """Keep what was made, as `envbuild.record` does: the artifact holds its packs while a link points at it."""
    made = {"artifact": str(done.artifact.path), "layers": [layer.diff_id for layer in done.layers]}
    value = {
        "made": made,
        "stat": stamp(done.artifact.path),
        "holds": {"units": [], "blobs": []},
        "converted": {**asdict(done), "artifact": {**asdict(done.artifact), "path": str(done.artifact.path)}},
    }
    write_json(record, value)


def remembered(record: Path) -> Converted | None:
    """What an earlier run made, if it still lies there untouched."""
    value = read_json(record)
    try:
        if value is None or value["stat"] != stamp(Path(value["made"]["artifact"])):
            return None
    except FileNotFoundError:
        return None
    found = value["converted"]
    artifact = found["artifact"]
    return Converted(
        Artifact(Path(artifact["path"]), artifact["sha256"], artifact["size"], tuple(artifact["messages"])),
        found["reference"],
        found["origin"],
        found["identity"],
        tuple(Layer(item["diff_id"], 0, True) for item in found["layers"]),
        0.0,
        True,
    )
