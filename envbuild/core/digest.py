"""Digests of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from envbuild.core.regular_file import open_regular


def file_digest(path: Path, *, follow: bool = True) -> str:
    """Return the sha256 (hex) of a regular file; `follow`: or of a symbolic link to one. Raises NotRegularError."""
    with open_regular(path, follow=follow) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
