"""A base image in a file of this machine (``base: ./app.tar``): whether it is that of a lock, and its copy in the
store."""

from __future__ import annotations

import hashlib
from pathlib import Path

from envbuild.core.distributions import is_local_image, is_own_image
from envbuild.core.errors import ConflictError, InputError
from envbuild.lock.base_image.local_image import import_image, source_of
from envbuild.lock.base_image.own_images import NO_IMAGES
from envbuild.lock.model import Lock
from envbuild.lock.request import lock_request
from envbuild.oci.sources.open import open_source
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace


def is_other_file(resolution: Resolution, lock: Lock, workspace: Workspace) -> tuple[bool | None, str]:
    """Return whether the image in a file is another one than the base image of a lock; None if the file cannot be read,
    and why. Its layers are not read."""
    request, locked = lock_request(resolution), lock.base_image
    source = source_of(request.base, Path(request.folder))
    try:
        with open_source(source, workspace.site, workspace.store, request.arch) as image:
            *manifests, configuration = (hashlib.sha256(document).hexdigest() for document in image.documents)
    except InputError as error:
        return None, error.message
    except ConflictError:  # for another architecture: a new lock reports it
        return True, ""
    if locked and not manifests:  # the lock's was made (`import_image`) of the configuration, which names the layers
        return configuration != locked.config, ""
    return not locked or manifests[0] != locked.digest, ""


def provide_base(resolution: Resolution, lock: Lock, workspace: Workspace) -> None:
    """Copy the base image of a lock from its file into a store that lacks a part of it, as after a clone of the
    project. A file that is missing, or another image, is left to `envbuild.lock.fetch`, which reports the parts. Raises
    InputError for a damaged file, EngineError if the store is full."""
    request, base, store = lock_request(resolution), lock.base_image, workspace.store
    if base is None or not is_local_image(request.base) or is_own_image(request.base):
        return
    if all(store.has_blob(digest, size) for digest, size, _ in base.layers) and store.has_blob(base.config):
        return
    if is_other_file(resolution, lock, workspace)[0] is False:
        folder, site, reporter = Path(request.folder), workspace.site, workspace.reporter
        import_image(request.base, folder, NO_IMAGES, request.arch, site, store, reporter)
