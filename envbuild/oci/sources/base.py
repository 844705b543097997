"""An image that somebody else made, as it is read: its configuration and its layers, bottom first.

One module of `envbuild.oci.sources.open` for each kind of place: a registry, an OCI layout, an archive of ``docker
save``, a Docker Engine. What they give is the same, so that what reads layers (`envbuild.oci.sources.read_layer`) knows
nothing of places.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Any

from envbuild.oci.config import ImageConfig


class RawStream(io.RawIOBase):
    """A stream that gives what its `read` gives."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


@dataclass(frozen=True, slots=True)
class SourceLayer:
    """One layer.

    `diff_id`: ``sha256:`` of the uncompressed tar, as the image's configuration says it (empty only in a stream that
    names its layers otherwise: see `SourceImage.stream`). `digest`: ``sha256:`` of the blob as it is stored (empty: the
    place names none, then only `diff_id` is checked), `size` its bytes (0: not said). `name`: for messages, e.g.
    ``layer 3 of 12``. `open` gives the blob from its first byte, compressed or not; it may be called again after a
    failure, and then asks another of the `places` that may have it first. `image`: what a person calls the image, as
    its `reference` (empty: not said).
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
    """An image. `origin`: where it came from, by digest and without a host's address where there is one
    (``oci:nvcr.io/nvidia/pytorch@sha256:…``, ``docker-archive:sha256:…``); `manifest`: ``sha256:`` of its manifest
    (empty where there is none); `identity`: ``sha256:`` of its configuration, which names its content wherever it
    comes from (Docker's image id); `name`: what files made from it are called; `created`: seconds since 1970 (0: not
    said). `notes`: what was left out of the configuration, and what else a person should know, one line each.

    `stream`, where there is one: the place gives its layers only one after another and in an order of its own. They
    are to be read from there, each before the next is asked for; a layer of the stream that says no `diff_id` is known
    when it was read, and what turns out to be no layer of the image is left out.
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
    stream: LayerStream | None = None
