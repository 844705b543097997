"""A digest of envbuild's own code: a changed envbuild may plan or write otherwise."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

import envbuild


@cache
def code_digest() -> str:
    """Return the sha256 (hex) of every Python file of the whole package, independent of where this module is."""
    package = str(Path(envbuild.__file__).parent)
    names = [f"{folder}/{file}" for folder, _, files in os.walk(package) for file in files if file.endswith(".py")]
    digest = hashlib.sha256()
    for name in sorted(names):  # a run that finds nothing to do comes here: half the time of `Path`
        with open(name, "rb", buffering=0) as file:  # noqa: PTH123
            content = file.read()
        digest.update(f"{name.removeprefix(package)} {len(content)}\n".encode() + content)
    return digest.hexdigest()
