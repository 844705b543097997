"""An image of the project in the Docker Engine of this machine, which may be another one than the one that is built."""

from __future__ import annotations

import contextlib

from envbuild.core.errors import EnvbuildError, InputError
from envbuild.core.shell import shell_word
from envbuild.launch.model import LaunchImage

HINT = "start Docker and check that `docker info` works for you, or use --as srun"


def engine_image(image: LaunchImage) -> str:
    """Return the id (``sha256:…``) of an image of the project in the Docker Engine, whose layers and variables must be
    those of the image as it is built here: its tag there follows from the lock, which an edit need not change.

    With the image store of containerd the id is not the digest of the configuration, so that the content is compared.

    Raises EngineError without an engine, EnvbuildError for another image, InputError for none.
    """
    from envbuild.oci.docker_engine import connect_engine
    from envbuild.oci.sources.docker_daemon import inspect_image
    from envbuild.oci.sources.platform import Platform

    hint = f"envbuild export {shell_word(image.name)} --to docker"
    with contextlib.closing(connect_engine(HINT)) as engine:
        try:
            found = inspect_image(engine, image.docker, Platform.of(image.arch))
        except InputError as error:
            raise InputError(error.message, hint) from None
    layers = tuple(layer.diff_id for layer in found.layers)
    if (layers, dict(found.config.env)) != (image.diff_ids, dict(image.env)):
        raise EnvbuildError(
            f"the Docker Engine has another image as {image.docker} than the one that is built here", hint=hint
        )
    return found.identity
