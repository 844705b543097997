"""A made image: what of it is in the project and the store, for the commands that use one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.errors import EnvbuildError, SpecError

if TYPE_CHECKING:  # what reads a file needs none of them
    from envbuild.lock.lockfile import Lock
    from envbuild.plan.units import Plan
    from envbuild.record import Made
    from envbuild.resolve import Resolution
    from envbuild.store import LayerRecord
    from envbuild.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Result:
    """A command's answer, for scripts and for people."""

    data: Any
    text: str


def squashfs_file(name: str) -> Path | None:
    """The file that NAME is when it is a path of one (it holds a slash or ends in .sqsh), else None: a spec's name.

    Raises SpecError for a path where no squashfs file is, and for an image of a registry or an archive.
    """
    if ":" in name and is_elsewhere(name):
        raise SpecError(
            f"{name[:200]} is no squashfs file yet",
            hint=f"envbuild export {shlex.quote(name[:200])} --to squashfs -o image.sqsh; then name image.sqsh",
        )
    if not name.endswith(".sqsh") and ("/" not in name or name.endswith((".yaml", ".yml"))):
        return None
    path = Path(name).expanduser().absolute()
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise SpecError(f"{name} cannot be read: {error.strerror}", hint="envbuild list shows what is made") from error
    if magic != b"hsqs":
        raise SpecError(f"{name} is not a squashfs file", hint="a spec's path ends in .yaml, an image's in .sqsh")
    return path


def is_elsewhere(name: str) -> bool:
    """Whether NAME is an image of a registry, an archive or another place."""
    from envbuild.oci.sources import PREFIXES

    return name.startswith(tuple(PREFIXES))


def inside(path: Path, *names: str) -> dict[str, str]:
    """Texts of /etc/envbuild of a squashfs file: name → content, without those that it does not hold. Raises
    VerifyError where the file is damaged."""
    from envbuild.squashfs.tree import SquashTree
    from envbuild.within import texts

    with SquashTree(path) as tree:
        return texts(tree, names)


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
