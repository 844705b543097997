"""A made image: what of it is in the project and the store, for the commands that use one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild import make as steps
from envbuild.errors import EnvbuildError, LockError
from envbuild.lock.lockfile import Lock
from envbuild.plan.units import Plan
from envbuild.resolve import Resolution
from envbuild.store import LayerRecord
from envbuild.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Result:
    """A command's answer, for scripts and for people."""

    data: Any
    text: str


def is_squashfs(name: str) -> bool:
    """Whether NAME is a finished file, not a spec."""
    path = Path(name)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"hsqs"


@dataclass(frozen=True, slots=True)
class Image:
    """A made image: everything about it that is in the project and the store."""

    resolution: Resolution
    lock: Lock
    plan: Plan
    made: steps.Made
    layers: tuple[LayerRecord, ...]


def made_image(name: str, workspace: Workspace) -> Image:
    """The image `name` as it was made. Raises LockError or EnvbuildError with the command that makes it."""
    resolution = steps.resolved(name, workspace)
    if not workspace.project.lock_path(resolution.spec.path).is_file():
        raise LockError(f"{resolution.spec.name} has no lock", hint=f"envbuild make {name}")
    lock = steps.locked(resolution, workspace)
    made = steps.finished(steps.record_path(resolution, lock, workspace), steps.Options(verify=False))
    if made is None:
        raise EnvbuildError(
            f"{resolution.spec.name} is not made, or something changed since", hint=f"envbuild make {name}"
        )
    layers = tuple(workspace.store.layer(layer) for layer in made.layers)
    return Image(resolution, lock, steps.planned(resolution, lock), made, layers)
