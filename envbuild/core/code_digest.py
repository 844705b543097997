"""A digest of envbuild's own code: a changed envbuild may plan or write otherwise."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import envbuild


@cache
def code_digest() -> str:
    """Return the sha256 (hex) of every Python file of the whole package, wherever this module stands in it."""
    package = Path(envbuild.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package)} {len(content)}\n".encode() + content)
    return digest.hexdigest()
