"""Third-party images, as they are read: the configuration and the layers, bottom first.

`envbuild.oci.sources.kinds` lists the kinds of sources: a registry, an OCI layout, an archive of ``docker save``, a
Docker Engine. All openers return the same classes, so that the reader of layers
(`envbuild.oci.sources.read_layer`) is independent of the source.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Any

from envbuild.core.store.store import Store
from envbuild.net.site import Site
from envbuild.oci.config import ImageConfig
from envbuild.oci.sources.platform import Platform


class RawStream(io.RawIOBase):
    """Base class of streams that implement `read`."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """The circumstances in which an image is opened. `keep`: cache the layers of a remote image in the store. `alone`:
    take nothing from the store, so that the source has every byte that is read. `manifest` (``sha256:…``): the image of
    a layout is the one with this manifest; of a registry the reference names it."""

    site: Site
    store: Store
    platform: Platform
    keep: bool = False
    alone: bool = False
    manifest: str = ""


@dataclass(frozen=True, slots=True)
class SourceLayer:
    """One layer.

    - `diff_id`: ``sha256:`` of the uncompressed tar, from the image's configuration (empty only in a stream that names
      its layers otherwise: see `SourceImage.stream`)
    - `digest`: ``sha256:`` of the stored blob (empty: the source names none, then only `diff_id` is checked)
    - `size`: bytes of the blob (0 without a `digest`: unknown)
    - `name`: for messages, e.g. ``layer 3 of 12``
    - `open`: returns the blob from its first byte, compressed or not; it may be called again after a failure, and then
      tries another of the `places` that may have it first
    - `image`: the `reference` of the image (empty: unknown)
    """

    diff_id: str
    digest: str
    size: int
    name: str
    open: Callable[[], AbstractContextManager[IO[bytes]]]
    places: int = 1
    image: str = ""


LayerStream = Callable[[], AbstractContextManager[Iterator[SourceLayer]]]


@dataclass(frozen=True, slots=True)
class SourceImage:
    """One image.

    - `origin`: its source, by digest and without a host's address where there is one
      (``oci:nvcr.io/nvidia/pytorch@sha256:…``, ``docker-archive:sha256:…``)
    - `manifest`: ``sha256:`` of its manifest (empty if there is none)
    - `identity`: ``sha256:`` of its configuration, which names its content for any source (Docker's image id)
    - `name`: base name of files made from it
    - `created`: seconds since 1970 (0: unknown)
    - `notes`: what was left out of the configuration, and other notes for the user, one line each
    - `warnings`: about the transfer, one line each; they do not depend on the content
    - `documents`: its manifest, if there is one, and its configuration, as they are stored; an image of a Docker Engine
      has none
    - `stream`, if there is one: the source sends its layers only one after another and in its own order. They must
      be read from it, each before the next is requested. The `diff_id` of a layer of the stream that has none is known
      after it was read, and an entry that is not a layer of the image is left out.
    """

    reference: str
    origin: str
    manifest: str
    config: ImageConfig
    created: int
    layers: tuple[SourceLayer, ...]
    identity: str = ""
    name: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    documents: tuple[bytes, ...] = ()
    stream: LayerStream | None = None
