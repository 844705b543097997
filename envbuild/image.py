"""A made image: what of it is in the project and the store, for the commands that use one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbuild.errors import EnvbuildError

if TYPE_CHECKING:  # what reads a file needs none of them
    from envbuild.lock.lockfile import Lock
    from envbuild.plan.units import Plan
    from envbuild.record import Made
    from envbuild.resolve import Resolution
    from envbuild.store import LayerRecord
    from envbuild.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Image:
    """A made image: everything about it that is in the project and the store."""

    resolution: Resolution
    lock: Lock
    plan: Plan
    made: Made
    layers: tuple[LayerRecord, ...]


def made_image(name: str, workspace: Workspace) -> Image:
    """The image `name` as it was made. Raises LockError or EnvbuildError with the command that makes it."""
    from envbuild.lock.resolve import resolve_image
    from envbuild.lock.update import current_lock
    from envbuild.plan.planner import make_plan
    from envbuild.record import finished

    resolution = resolve_image(name, workspace)
    lock = current_lock(resolution, workspace)
    made = finished(resolution, workspace)
    if made is None:
        raise EnvbuildError(
            f"{resolution.spec.name} is not made, or something changed since", hint=f"envbuild make {name}"
        )
    layers = tuple(workspace.store.layer(layer) for layer in made.layers)
    return Image(resolution, lock, make_plan(resolution, lock), made, layers)
