"""The one door to `cryptography`, which the extra ``envbuild[sign]`` installs: nothing but signatures needs it."""

from __future__ import annotations

import importlib.util

from envbuild.core.errors import SignatureError


def require_library() -> None:
    """Raise SignatureError with the command that installs it if `cryptography` is missing."""
    if importlib.util.find_spec("cryptography") is None:
        raise SignatureError(
            "signatures need the Python package cryptography, which is not installed",
            hint="pip install 'envbuild[sign]'",
        )
