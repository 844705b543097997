"""Images of the Docker Engine of this machine, through its API.

An image is inspected first (``GET /images/NAME/json``): if all of its layers are packed already, nothing is sent.
Otherwise the engine sends an archive once (``GET /images/NAME/get``, as `docker save` writes it), which is packed
as it comes.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, cast

from envbuild.core.bounded_tar import ImageTarFile
from envbuild.core.errors import EngineError, InputError
from envbuild.oci import manifest as m
from envbuild.oci.docker_engine import START, connect_engine
from envbuild.oci.document import InvalidDocumentError, Part
from envbuild.oci.sources import image_documents
from envbuild.oci.sources.archive_stream import BUFFER, read_sent_layers
from envbuild.oci.sources.base import SourceImage, SourceLayer, SourceRequest
from envbuild.oci.sources.platform import Platform

if TYPE_CHECKING:
    from docker import DockerClient

CHUNK = 1 << 20
HINT = f"{START}, or take the image from its registry: docker://NAME"


@contextlib.contextmanager
def open_daemon(rest: str, request: SourceRequest) -> Iterator[SourceImage]:
    """Return the image that the engine calls `rest` (a reference or an id).

    Raises EngineError without an engine, InputError, ConflictError.
    """
    with contextlib.closing(connect_engine(HINT)) as engine:
        yield inspect_image(engine, rest, request.platform)


def inspect_image(engine: DockerClient, name: str, platform: Platform) -> SourceImage:
    import docker.errors
    import requests

    reference = f"docker-daemon:{name}"
    try:
        value: Any = engine.api.inspect_image(name)  # type: ignore[no-untyped-call]
    except docker.errors.NotFound:
        raise InputError(
            f"the Docker Engine has no image {name}", hint="docker images lists them; docker pull gets one"
        ) from None
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise EngineError(f"the Docker Engine does not describe {name}: {error}", hint=HINT) from None
    found = parse_inspection(value, reference, platform)
    layers = tuple(
        SourceLayer(diff_id, "", 0, image_documents.layer_name(number, len(found.diff_ids)), refuse_direct_read)
        for number, diff_id in enumerate(found.diff_ids, 1)
    )
    tags = [str(tag) for tag in value.get("RepoTags") or []]
    words = (name if name in tags or not tags else tags[0]).rpartition("/")[2]
    plain = words.removeprefix("sha256:")[:12] if words.startswith("sha256:") else words

    @contextlib.contextmanager
    def stream() -> Iterator[Iterator[SourceLayer]]:
        try:
            with (
                contextlib.closing(ChunkFile(save_image(engine, found.identity))) as content,
                ImageTarFile.open(fileobj=cast("IO[bytes]", content), mode="r|", bufsize=BUFFER) as tar,
            ):
                yield (replace(layer, image=reference) for layer in read_sent_layers(tar, found.diff_ids))
        except (docker.errors.DockerException, requests.RequestException, tarfile.TarError) as error:
            raise EngineError(f"the Docker Engine broke off sending {name}: {error}", hint=HINT) from None

    return SourceImage(
        reference=reference,
        origin=f"docker-daemon:{found.identity}",
        manifest="",
        config=found.config,
        created=found.created,
        layers=layers,
        identity=found.identity,
        name=image_documents.file_name([plain.partition("@")[0].replace(":", "-")]),
        notes=found.notes,
        stream=stream,
    )


def parse_inspection(value: Mapping[str, Any], reference: str, platform: Platform) -> image_documents.SourceConfig:
    """Return the configuration in the engine's answer, which has other names for its keys. Its id is the digest of the
    configuration, but with the image store of containerd that of the manifest."""
    whole = Part(value)
    try:
        same = {
            "architecture": whole.part("Architecture").value,
            "variant": whole.part("Variant").value,
            "os": whole.part("Os").value,
            "created": whole.part("Created").value,
            "config": whole.part("Config").value,
            "rootfs": {"diff_ids": whole.part("RootFS").optional("Layers").value or []},
        }
        identity = whole.part("Id").expect(str)
    except InvalidDocumentError as error:
        raise m.corrupt_document_error(reference, error, "description") from None
    return image_documents.parse_configuration(same, identity, reference, platform)


def save_image(engine: DockerClient, identity: str) -> Iterator[bytes]:
    """Return the archive of an image, named by its id: its name may move to another image meanwhile."""
    engine.api.timeout = None  # type: ignore[assignment]  # older engines write the archive to their disk before the first byte comes
    return cast("Iterator[bytes]", engine.api.get_image(identity, chunk_size=CHUNK))


def refuse_direct_read() -> contextlib.AbstractContextManager[IO[bytes]]:
    """Raise EngineError: layers of an engine have no blob of their own."""
    raise EngineError("a layer of a Docker Engine is read from its stream")


class ChunkFile(io.RawIOBase):
    """File of the chunks of an iterator."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks, self.rest = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.rest:
            chunk = next(self.chunks, None)
            if chunk is None:
                return 0
            self.rest = memoryview(chunk)
        count = min(len(buffer), len(self.rest))
        buffer[:count] = self.rest[:count]
        self.rest = self.rest[count:]
        return count
