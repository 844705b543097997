"""``make`` with the caches of the site: units are taken from them, and those that were built here are sent to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from envbuild.core.errors import ConflictError, LockError, SpecError
from envbuild.export.built_image import ImageRecord, read_image_record
from envbuild.make import Options
from envbuild.spec.workspace import Workspace

if TYPE_CHECKING:  # with a network client
    from envbuild.build.cache.open_cache import OpenCache

Make = Callable[[str, Workspace, Options], ImageRecord]


def site_caches(workspace: Workspace) -> Sequence[OpenCache]:
    """Return the caches of the site, for one or more images: one that does not answer is left alone after that."""
    if not workspace.site.caches:
        return ()
    from envbuild.build.cache.open_cache import open_caches

    return open_caches(workspace.site, workspace.reporter)


def make_and_share(make: Make, name: str, workspace: Workspace, options: Options, *, send: bool = True) -> ImageRecord:
    """Return the image `name` as `make` (of `envbuild.make`) made it; then send those of its units that a cache lacks,
    unless `send` is False: also of an image that was built before the site had the cache.

    options: with `caches`.
    """
    caches = [cache for cache in options.caches or () if send and cache.setting.write]
    for cache in caches:
        warn_of_key(cache, workspace)  # the build may take an hour
    made = make(name, workspace, options)
    if not caches:
        return made
    from envbuild.build.engines.select import load_engine
    from envbuild.build.plan.planner import make_plan
    from envbuild.export.base_caches import caches_below
    from envbuild.lock.resolve import resolve_image
    from envbuild.lock.update import current_lock
    from envbuild.publish.cached_units import send_units

    if load_engine(made.engine).caches:
        try:
            resolution = resolve_image(name, workspace)
            lock = current_lock(resolution, workspace)
            plan = make_plan(resolution, lock)
        except (SpecError, ConflictError, LockError):  # half edited, or the lock is one of the former text
            return left_alone(made, name, workspace)
        known = read_image_record(resolution, workspace)  # of what a recipe, spec and lock are now
        if known is None or (known.sha256, known.layers) != (made.sha256, made.layers):
            return left_alone(made, name, workspace)
        found = (workspace.store.unit(key) for key in plan.keys().values())
        below = {cache for names in caches_below(resolution, lock, workspace, made).values() for cache in names}
        records = [
            replace(record, caches=tuple(sorted(below.union(record.caches))))
            for record in found
            if record and not record.source
        ]
        send_units(records, options.caches or (), workspace.store, workspace.reporter)
    return made


def left_alone(made: ImageRecord, name: str, workspace: Workspace) -> ImageRecord:
    """Report that no unit of an image is sent."""
    workspace.reporter.warn(f"no unit of {name} is sent to a cache: it changed while it was made")
    return made


def warn_of_key(cache: OpenCache, workspace: Workspace) -> None:
    """Report that no unit can be sent to a cache, if its private key cannot be used."""
    if cache.setting.sign is None:
        return
    from envbuild.core.errors import SignatureError
    from envbuild.core.signing.key_file import read_box

    try:
        read_box(cache.setting.sign)
    except SignatureError as error:
        hint = f" ({error.hint})" if error.hint else ""
        workspace.reporter.warn(f"no unit can be sent to the cache {cache.name}: {error.message}{hint}")
