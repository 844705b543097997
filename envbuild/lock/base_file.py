"""A base image on this machine, in a file (``base: ./app.tar``) or built of the project: whether it is that of a lock,
and its copy in the store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from envbuild.core.console import Reporter
from envbuild.core.distributions import is_local_image, is_own_image
from envbuild.core.errors import ConflictError, InputError, LockError, SpecError
from envbuild.core.store.store import Store
from envbuild.lock.base_image.local_image import import_image, source_of
from envbuild.lock.base_image.own_images import OwnImages
from envbuild.lock.inputs import ImageBlob, Input
from envbuild.lock.model import BaseImage, Lock
from envbuild.net.site import Site
from envbuild.oci.sources.open import open_source

TASK = "base"


def is_other_file(
    base: str, folder: Path, arch: str, locked: BaseImage | None, site: Site, store: Store, reporter: Reporter
) -> tuple[bool | None, str]:
    """Return whether the image in the file of `base`, of which a relative path begins in `folder`, is another one than
    a locked base image; None if the file cannot be read, and why. Its layers are not read."""
    reporter.start(TASK, f"comparing {base} with the lock")  # a compressed archive is read to its end for its documents
    try:
        with open_source(source_of(base, folder), site, store, arch) as image:
            *manifests, configuration = (hashlib.sha256(document).hexdigest() for document in image.documents)
            sizes = [layer.size for layer in image.layers]
    except (InputError, SpecError) as error:
        return None, error.message
    except OSError as error:  # of a folder that this user may not enter
        return None, str(error)
    except ConflictError:  # for another architecture: a new lock reports it
        return True, ""
    finally:
        reporter.finish(TASK)
    if not locked or manifests:
        return not locked or manifests[0] != locked.digest, ""
    # The lock's manifest was made (`import_image`) of the configuration, which names the content of the layers, and of
    # the layers as the archive has them: perhaps compressed.
    packed = len(sizes) != len(locked.layers) or any(
        size not in (0, stored) for size, (_, stored, _) in zip(sizes, locked.layers, strict=True)
    )
    return packed or configuration != locked.config, ""


def is_other_base(
    base: str, lock: Lock, folder: Path, own: OwnImages, site: Site, store: Store, reporter: Reporter
) -> tuple[bool | None, str]:
    """Return whether `base`, which is a file or another image of the project, is another one than in a lock; None if it
    is not here, and why."""
    if not is_own_image(base):
        return is_other_file(base, folder, lock.arch, lock.base_image, site, store, reporter)
    other = own.is_other(base, lock)
    return other, "" if other is not None else f"{base} is not built here, or changed since (envbuild make {base})"


def provide_base(
    lock: Lock, wanted: Iterable[Input], folder: Path, own: OwnImages, site: Site, store: Store, reporter: Reporter
) -> None:
    """Copy the base image of a lock, from its file or as it was built of the project, into a store that lacks a part of
    it that is `wanted`, as after a clone of the project. One that is missing, damaged or another image, which is
    reported, is left to `envbuild.lock.fetch`: a mirror may have the parts. Raises EngineError if the store is full."""
    base = lock.base_image
    if base is None or not any(isinstance(entry, ImageBlob) for entry in wanted):
        return
    name = base.reference
    if not is_local_image(name):
        return
    other, why = is_other_base(name, lock, folder, own, site, store, reporter)
    if other is False:
        try:
            other = import_image(name, folder, own, lock.arch, site, store, reporter) != base.digest
        except (InputError, LockError) as error:
            why = error.message
    if other:
        why = f"it is another image than that of the lock (envbuild lock {lock.image} takes it)"
    if why:  # of an image of the project a site without a network has the parts in a mirror
        report = reporter.info if other is None and is_own_image(name) else reporter.warn
        report(f"the base {name} is not copied: {why}")
