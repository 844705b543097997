"""Images as OCI image layouts: a folder that skopeo, podman, enroot, crane and registries' clients read.

    oci-layout              the version of the format
    index.json              the manifest's digest and the image's name
    blobs/sha256/<hex>      manifest, configuration, layers

Formats: OCI image spec 1.1, image-layout.md and manifest.md; Docker's media types: distribution, "Image Manifest V 2,
Schema 2". Everything is deterministic: the same layers, configuration and compression give the same bytes, however many
threads work.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from envbuild.core.errors import PublishError, SpecError
from envbuild.core.json_text import canonical_json, json_value
from envbuild.core.regular_file import read_bounded
from envbuild.core.shell import shell_word
from envbuild.core.store.store import LayerRecord, Store
from envbuild.core.text import human_list, printable
from envbuild.net.registry.media_types import DOCKER, OCI, REF_NAME, MediaTypes
from envbuild.oci.config import ImageConfig, config_json
from envbuild.oci.document import MAX_DOCUMENT
from envbuild.oci.layers.compressed import read_compressed, record_compressed
from envbuild.oci.layers.layer import write_layer_tar
from envbuild.oci.output_folder import open_output_folder
from envbuild.oci.tar.compress import HashingWriter, open_compressor

NAMED = 5  # entries in a message


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Blob of a layout: media type, ``sha256:<hex>``, bytes."""

    media_type: str
    digest: str
    size: int

    def json(self) -> dict[str, Any]:
        """Return the descriptor as a document of the layout contains it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


class Encoding(Protocol):
    """One way to write the blob of a layer. `name`: the same for the same bytes of the same layer."""

    name: str

    def write(self, out: HashingWriter) -> None:
        """Write the blob. Raises EngineError for a damaged layer."""
        ...


Encode = Callable[[LayerRecord], Encoding | None]  # None: a tar that is compressed as a whole


@dataclass(frozen=True, slots=True)
class Layout:
    """Finished layout; `layers` in its order, bottom first."""

    path: Path
    manifest_digest: str
    config_digest: str
    layers: tuple[Descriptor, ...]


def write_layout(
    layers: Sequence[LayerRecord],
    config: ImageConfig,
    out: Path,
    store: Store,
    *,
    epoch: int,
    name: str,
    compression: str = "gzip",
    docker: bool = False,
    jobs: int = 0,
    present: Callable[[str, int], bool] | None = None,
    encode: Encode | None = None,
) -> Layout:
    """Write the image of `layers` (bottom first) as a layout into the folder `out`; an older layout there is replaced.

    `epoch`: creation time in seconds. `name`: the image's name or tag in index.json. `compression`: gzip, zstd or none.
    `docker`: Docker's media types instead of OCI's, for pushing; skopeo's ``oci:`` reads only OCI's. `jobs`: threads
    (0: all cores). `present`: whether the target of the layout has a blob (``sha256:…``, bytes): a layer that was
    compressed before, and that it has, is then not in the layout. `encode`: another encoding of some layers in the same
    `compression`.

    Raises SpecError for a compression that does not exist, EngineError for a damaged layer, PublishError when `out` is
    something else or cannot be written.
    """
    types = DOCKER if docker else OCI
    if compression not in types.layers:
        raise SpecError(
            f"{'Docker' if docker else 'OCI'} images have no layers compressed with {compression!r}",
            hint=f"use one of: {', '.join(types.layers)}",
        )
    try:
        with open_output_folder(out, "oci-layout", partial(_check_older, out, name)) as folder:
            (folder.handle / "blobs" / "sha256").mkdir(parents=True)
            jobs = jobs or len(os.sched_getaffinity(0))
            writer = _Writer(folder.handle, store, types, compression, jobs, present, encode)
            layout = writer.write(layers, config, epoch, name)
            folder.publish()
    except OSError as error:
        raise PublishError(
            f"the layout {out} cannot be written: {error.strerror or error}",
            hint="name a new folder on a writable disk with free space: -o FOLDER",
        ) from error
    return Layout(out, *layout)


def check_output(out: Path, name: str) -> None:
    """Raise PublishError if a layout of the image `name` would replace anything other than an empty folder, or a layout
    of this image alone."""
    _check_older(out, name, out)


def _check_older(out: Path, name: str, at: Path) -> None:
    """Check an older output at `out` as `check_output`, by the path `at`."""
    if not at.exists():
        return
    entries = {path.name for path in at.iterdir()} if at.is_dir() else {""}
    if entries and "oci-layout" not in entries:
        new = out / "image.oci" if at.is_dir() else out.with_name(f"{out.name}.oci")
        raise PublishError(f"{out} exists and is not an OCI layout", hint=f"name a new folder: -o {shell_word(new)}")
    others = sorted(entries - {"oci-layout", "index.json", "blobs"})
    names = listed_names(at / "index.json")
    if not names:
        others += ["blobs that no index lists"] if has_blobs(at) else []
    else:
        others += [f"image {other or 'without a name'}" for other in names if other != name]
        others += [f"{len(names)} images {name}"] if names.count(name) > 1 else []
    if others:
        what = human_list(map(printable, others), NAMED)
        raise PublishError(
            f"{out} is an OCI layout with more than {name}, which would be removed: {what}",
            hint=f"to add the image to it:  envbuild publish {name} --to oci:{shell_word(out)}, or name a new folder",
        )


def listed_names(index: Path) -> list[str] | None:
    """Return the names of the images in an index, "" for one without a name; None for an index that cannot be read."""
    try:
        value = json_value(read_bounded(index, MAX_DOCUMENT, follow=False))
        return [str((entry.get("annotations") or {}).get(REF_NAME, "")) for entry in value["manifests"]]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def has_blobs(layout: Path) -> bool:
    """Return whether a layout has any file below ``blobs``, or something else in its place."""
    blobs = layout / "blobs"
    if not os.path.lexists(blobs):
        return False
    return blobs.is_symlink() or not blobs.is_dir() or any(not path.is_dir() for path in blobs.rglob("*"))


@dataclass(frozen=True, slots=True)
class _Writer:
    root: Path
    store: Store
    types: MediaTypes
    compression: str
    jobs: int
    present: Callable[[str, int], bool] | None = None
    encode: Encode | None = None

    def write(
        self, layers: Sequence[LayerRecord], config: ImageConfig, epoch: int, name: str
    ) -> tuple[str, str, tuple[Descriptor, ...]]:
        """Write all files. Return the digests of manifest and configuration, and the layers."""
        together = max(1, min(self.jobs, len(layers)))
        with ThreadPoolExecutor(together) as pool:
            threads = max(1, self.jobs // together)
            written = tuple(pool.map(lambda number: self.layer(number, layers[number], threads), range(len(layers))))
        configuration = self.blob(self.types.config, config_json(layers, config, epoch))
        manifest = self.blob(
            self.types.manifest,
            canonical_json(
                {
                    "schemaVersion": 2,
                    "mediaType": self.types.manifest,
                    "config": configuration.json(),
                    "layers": [layer.json() for layer in written],
                }
            ),
        )
        described = {
            **manifest.json(),
            "annotations": {REF_NAME: name},
            "platform": {"architecture": config.architecture, "os": "linux"},
        }
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [described]}
        (self.root / "index.json").write_bytes(canonical_json(index))
        (self.root / "oci-layout").write_bytes(canonical_json({"imageLayoutVersion": "1.0.0"}))
        return manifest.digest, configuration.digest, written

    def layer(self, number: int, record: LayerRecord, threads: int) -> Descriptor:
        """Compress one layer into a blob, unless the target has it."""
        encoding = self.encode(record) if self.encode else None
        key = encoding.name if encoding else self.compression
        known = read_compressed(self.store, record, key) if self.present else None
        if known and self.present and self.present(*known):
            return Descriptor(self.types.layers[self.compression], *known)
        temporary = self.root / f"layer-{number}"
        with temporary.open("wb") as file:
            measured = HashingWriter(file)
            if encoding:
                encoding.write(measured)
            else:
                with open_compressor(measured, self.compression, threads) as stream:
                    write_layer_tar(self.store, record, stream)
        temporary.rename(self.root / "blobs" / "sha256" / measured.sha256)
        record_compressed(self.store, record, key, f"sha256:{measured.sha256}", measured.size)
        return Descriptor(self.types.layers[self.compression], f"sha256:{measured.sha256}", measured.size)

    def blob(self, media_type: str, content: bytes) -> Descriptor:
        """Write a small blob."""
        sha256 = hashlib.sha256(content).hexdigest()
        (self.root / "blobs" / "sha256" / sha256).write_bytes(content)
        return Descriptor(media_type, f"sha256:{sha256}", len(content))
