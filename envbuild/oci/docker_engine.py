"""An image into a running Docker Engine, without writing it to a file first.

The stream is a Docker archive, as ``docker save`` writes it (Docker image specification 1.2, "Combined Image JSON +
Filesystem Changeset Format"): the configuration, one tar a layer, and manifest.json. Layer sizes are known beforehand,
so nothing is held in memory.
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
from envbuild.core.store.store import LayerRecord, Store
from envbuild.oci.config import ImageConfig, canonical, config_json
from envbuild.oci.layers.layer import write_layer_tar

if TYPE_CHECKING:
    from docker import DockerClient

CHUNK = 1 << 20
START = "start Docker and see that `docker info` works for you (DOCKER_HOST says which engine)"
HINT = f"{START}, or use --to oci"


def load(
    layers: Sequence[LayerRecord], config: ImageConfig, store: Store, *, epoch: int, reference: str, reporter: Reporter
) -> str:
    """Load the image of `layers` (bottom first) as `reference` (``name[:tag]``) into the environment's Docker Engine.

    `epoch`: creation time in seconds. Returns the image's id. Raises EngineError when there is no engine, it may not be
    used, or it refuses the image, and when a layer is damaged.
    """
    import docker.errors
    import requests

    if ":" not in reference.rpartition("/")[2]:
        reference += ":latest"
    stream = _Stream(layers, config, store, epoch, reference, reporter)
    with contextlib.closing(engine_here()) as engine:
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
            raise EngineError(f"Docker did not say that it loaded {reference}", hint="look into the log of dockerd")
        return str(images[0].id)


def engine_here(hint: str = HINT) -> DockerClient:
    """A client of a Docker Engine that answers. Raises EngineError, with `hint`."""
    import docker
    import docker.errors
    import requests

    try:
        engine = docker.from_env()
        engine.ping()
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        denied = "PermissionError" in str(error) or "Permission denied" in str(error)
        reason = "permission denied" if denied else str(error)
        raise EngineError(f"no Docker Engine can be used here: {reason}", hint=hint) from error
    return engine


@dataclass
class _Stream:
    """The archive, made by a thread while it is read from `chunks`. `failure`: why it was cut off."""

    layers: Sequence[LayerRecord]
    config: ImageConfig
    store: Store
    epoch: int
    reference: str
    reporter: Reporter
    failure: BaseException | None = field(default=None, init=False)

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the archive."""
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
        if self.failure:  # not a clean end: the engine must not take a cut archive for a whole one
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
        self._file(pipe, "manifest.json", canonical(manifest))
        pipe.write(bytes(2 * tarfile.BLOCKSIZE))

    def _file(self, pipe: IO[bytes], name: str, content: bytes) -> None:
        pipe.write(self._header(name, len(content)) + content + bytes(-len(content) % tarfile.BLOCKSIZE))

    def _header(self, name: str, size: int) -> bytes:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mtime = size, self.epoch
        return entry.tobuf(tarfile.PAX_FORMAT)
