"""Loads an image into a running Docker Engine, without writing it to a file first.

The stream is a Docker archive, as ``docker save`` writes it (Docker image specification 1.2, "Combined Image JSON +
Filesystem Changeset Format"): the configuration, one tar a layer, and manifest.json. Layer sizes are known beforehand,
so no layer is buffered in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tarfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from envbuild.core.console import Reporter
from envbuild.core.errors import EngineError
from envbuild.core.json_text import canonical_json
from envbuild.core.store.store import LayerRecord, Store
from envbuild.oci.config import ImageConfig, config_json
from envbuild.oci.layers.layer import write_layer_tar

if TYPE_CHECKING:
    from docker import DockerClient

CHUNK = 1 << 20
START = "start Docker and check that `docker info` works for you (DOCKER_HOST selects the engine)"
HINT = f"{START}, or use --to oci"


def load_image(
    layers: Sequence[LayerRecord], config: ImageConfig, store: Store, *, epoch: int, reference: str, reporter: Reporter
) -> str:
    """Load the image of `layers` (bottom first) as `reference` (``name[:tag]``) into the environment's Docker Engine.

    `epoch`: creation time in seconds. Return the image's id. Raises EngineError if there is no engine, if the user
    has no permission to use it, if it refuses the image, or if a layer is corrupt.
    """
    import docker.errors
    import requests

    if ":" not in reference.rpartition("/")[2]:
        reference += ":latest"
    stream = _ArchiveStream(layers, config, store, epoch, reference, reporter)
    with contextlib.closing(connect_engine()) as engine:
        reporter.start("docker", f"loading {reference} into Docker")
        try:
            images = engine.images.load(stream.chunks())  # type: ignore[arg-type]  # a generator is sent in chunks
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise stream.failure or EngineError(f"Docker refused {reference}: {error}", hint=HINT) from error
        finally:
            reporter.finish("docker")
        if stream.failure:
            raise stream.failure
        if not images:
            raise EngineError(f"Docker did not confirm that it loaded {reference}", hint="read the log of dockerd")
        return str(images[0].id)


def connect_engine(hint: str = HINT) -> DockerClient:
    """Return a client of a Docker Engine that answers. Raises EngineError, with `hint`."""
    import docker
    import docker.errors
    import requests

    try:
        engine = docker.from_env()
        engine.ping()
    except (docker.errors.DockerException, requests.RequestException, OSError, ValueError) as error:  # its config.json
        denied = "PermissionError" in str(error) or "Permission denied" in str(error)
        reason = "permission denied" if denied else str(error)
        raise EngineError(f"no Docker Engine can be used here: {reason}", hint=hint) from error
    return engine


@dataclass
class _ArchiveStream:
    """Archive that a thread writes while it is read from `chunks`. `failure`: why it was truncated."""

    layers: Sequence[LayerRecord]
    config: ImageConfig
    store: Store
    epoch: int
    reference: str
    reporter: Reporter
    failure: BaseException | None = field(default=None, init=False)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the archive."""
        read, write = os.pipe()
        thread = threading.Thread(target=self._run, args=(write,), daemon=True)
        total, done = sum(layer.size for layer in self.layers), 0
        thread.start()
        try:
            with os.fdopen(read, "rb", buffering=0) as pipe:
                while chunk := pipe.read(CHUNK):
                    done += len(chunk)
                    self.reporter.advance("docker", done, total)
                    yield chunk
        finally:  # also when Docker hung up: the closed pipe ends the thread
            thread.join()
        if self.failure:  # not a clean end: the engine must not accept a truncated archive as complete
            raise OSError(str(self.failure))

    def _run(self, descriptor: int) -> None:
        try:
            with os.fdopen(descriptor, "wb") as pipe:
                self._write(pipe)
        except BrokenPipeError:
            pass
        except BaseException as error:
            self.failure = error

    def _write(self, pipe: IO[bytes]) -> None:
        content = config_json(self.layers, self.config, self.epoch)
        config_name = f"{hashlib.sha256(content).hexdigest()}.json"
        names = [f"{number:03d}-{layer.hex}/layer.tar" for number, layer in enumerate(self.layers)]
        manifest = [{"Config": config_name, "RepoTags": [self.reference], "Layers": names}]
        self._file(pipe, config_name, content)
        for name, layer in zip(names, self.layers, strict=True):
            pipe.write(self._header(name, layer.size))
            write_layer_tar(self.store, layer, pipe)  # a tar is a whole number of blocks: no padding
        self._file(pipe, "manifest.json", canonical_json(manifest))
        pipe.write(bytes(2 * tarfile.BLOCKSIZE))

    def _file(self, pipe: IO[bytes], name: str, content: bytes) -> None:
        pipe.write(self._header(name, len(content)) + content + bytes(-len(content) % tarfile.BLOCKSIZE))

    def _header(self, name: str, size: int) -> bytes:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mtime = size, self.epoch
        return entry.tobuf(tarfile.PAX_FORMAT)
