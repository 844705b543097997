"""The folder of this package, and paths as users write them."""

from __future__ import annotations

import sys
from pathlib import Path

import envbuild
from envbuild.core.errors import SpecError

PACKAGE = Path(envbuild.__file__).resolve().parent


def import_path() -> list[str]:
    """Return this process's import path, the folder that holds the package first, for a process started with -I."""
    root = str(PACKAGE.parent)
    return [root, *(item for item in sys.path if item and item != root)]


def expand_home(text: str) -> Path:
    """Return the path that a user wrote, with ``~`` and ``~USER`` at its begin replaced by a home folder.

    Raises SpecError if that user does not exist, or has none.
    """
    if not text.startswith("~"):  # Path("./~x") has lost its first two characters
        return Path(text)
    try:
        return Path(text).expanduser()
    except RuntimeError:
        name = text.partition("/")[0]
        hint = f"write the whole path, or ./{text} for a file of that name"
        raise SpecError(f"'{text[:200]}' is not a path: {name[:100]} has no home folder", hint) from None
