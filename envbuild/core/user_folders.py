"""Folders of the user that programs share (XDG base directory specification)."""

from __future__ import annotations

import os
from pathlib import Path


def user_folder(variable: str, default: str) -> Path | None:
    """Return the folder that an environment variable names, or `default` in the home folder; None for a user without a
    home, as in many a container. Relative paths are to be ignored."""
    value = os.environ.get(variable, "")
    if value.startswith("/"):
        return Path(value)
    try:
        return Path.home() / default
    except RuntimeError:
        return None


def config_folder() -> Path | None:
    """Return the user's configuration folder of envbuild; None for a user without a home."""
    config = user_folder("XDG_CONFIG_HOME", ".config")
    return config / "envbuild" if config else None
