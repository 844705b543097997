"""Digests of files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from envbuild.core.console import Reporter
from envbuild.core.regular_file import open_regular

CHUNK = 1 << 20


def file_digest(path: Path, *, follow: bool = True, progress: Callable[[int], object] | None = None) -> str:
    """Return the sha256 (hex) of a regular file; `follow`: or of a symbolic link to one. Raises NotRegularError.

    `progress` is called with the bytes that were read.
    """
    with open_regular(path, follow=follow) as file:
        if progress is None:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        digest = hashlib.sha256()
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            progress(len(chunk))
        return digest.hexdigest()


def reported_digest(path: Path, reporter: Reporter, *, follow: bool = True, name: str = "") -> str:
    """Return `file_digest` of a large file, as a task of the reporter. `name`: what the user calls it."""
    reporter.start("digest", f"sha256 of {name or path.name}")
    try:
        return file_digest(path, follow=follow)
    finally:
        reporter.finish("digest")
