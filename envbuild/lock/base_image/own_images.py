"""An image of the project as base of another one. What was built of it is known above this package, which gets it as
functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import LockError
from envbuild.lock.model import Lock


def refuse_own_image(name: str) -> AbstractContextManager[Path]:
    """Raise LockError: nothing here knows what was built of the project's image `name`."""
    raise LockError(f"the base '{name}' is not built here", hint=f"envbuild make {name}")


@dataclass(frozen=True, slots=True)
class OwnImages:
    """Images of the project by name, as they were built.

    open: returns the OCI layout of one. layers: returns the digests (``sha256:…``) of its layers, bottom first; None if
    it is not built."""

    open: Callable[[str], AbstractContextManager[Path]] = refuse_own_image
    layers: Callable[[str], Sequence[str] | None] = lambda name: None

    def is_other(self, name: str, lock: Lock) -> bool | None:
        """Return whether an image was built with other layers than the base image of a lock; None if it is not built.
        The layers of the layout are not compressed, so that both have the same digests."""
        layers = self.layers(name)
        locked = [f"sha256:{digest}" for digest, *_ in (lock.base_image.layers if lock.base_image else ())]
        return None if layers is None else list(layers) != locked


NO_IMAGES = OwnImages()
