"""An image of the project as base of another one. What was built of it is known above this package, which gets it as a
function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from envbuild.core.errors import LockError

OwnImages = Callable[[str], AbstractContextManager[Path]]  # name of an image of the project → the OCI layout of it


def refuse_own_image(name: str) -> AbstractContextManager[Path]:
    """Raise LockError: nothing here knows what was built of the project's image `name`."""
    raise LockError(f"the base '{name}' is not built here", hint=f"envbuild make {name}")
