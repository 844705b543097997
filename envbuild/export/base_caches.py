"""The caches of which units were taken for the images of a project that an image is based on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from envbuild.core.distributions import is_own_image
from envbuild.core.errors import EnvbuildError
from envbuild.core.shell import shell_word
from envbuild.export.built_image import ImageRecord, read_any_record
from envbuild.lock.resolve import resolve_image
from envbuild.net.unit_caches import UNKNOWN, names_without

if TYPE_CHECKING:
    from envbuild.lock.model import Lock
    from envbuild.spec.resolve import Resolution
    from envbuild.spec.workspace import Workspace


def caches_below(
    resolution: Resolution, lock: Lock, workspace: Workspace, record: ImageRecord | None = None
) -> Mapping[str, tuple[str, ...]]:
    """Return image → caches of the images of the project that an image is based on, the nearest first.

    Of one that is not built here, or that was built again since, those of the layers in the lock count: `UNKNOWN` if
    the store does not have their records. With the `record` of the image itself, what that has from its build counts.
    """
    found: dict[str, tuple[str, ...]] = {}
    digests = [f"sha256:{digest}" for digest, *_ in (lock.base_image.layers if lock.base_image else ())]
    known = set(record.base_caches) if record else set()
    while is_own_image(resolution.spec.base):
        resolution = resolve_image(resolution.spec.base, workspace)
        _, made = read_any_record(resolution, workspace)
        for digest in digests:
            if layer := workspace.store.find_layer(digest):
                known.update(layer.all_caches)
            elif not record and not (made and digest in made.layers):
                known.add(UNKNOWN)
        found[resolution.spec.name] = tuple(sorted(known.union(made.all_caches if made else ())))
        digests, known = [], set()  # the nearest image has those of all below it
    return found


def check_base_caches(resolution: Resolution, lock: Lock, workspace: Workspace) -> None:
    """Check that the site lists the caches of which units were taken for the layers of a base image. Raises
    EnvbuildError, SignatureError for a key of a cache that cannot be read."""
    name = shell_word(resolution.spec.name)
    for below, caches in caches_below(resolution, lock, workspace).items():
        if unlisted := names_without(caches, workspace.site.caches):
            raise EnvbuildError(
                f"units of {below}, on which {resolution.spec.name} is based, are from caches that the site does not "
                f"list: {', '.join(unlisted)}",
                hint=f"envbuild make {shell_word(below)}; then lock and make again what is based on it, as {name}",
            )
