"""Unified diffs that a recipe applies to its source.

The text of a patch is part of the commands of a unit, and so of its key. It is applied without fuzz: a hunk that only
nearly fits may change another place of a new version. Its line ends and other characters remain as they are."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path

from envbuild.build.blocks.checks import written
from envbuild.build.steps import WORK

FOLDER = f"{WORK}/patches"


def apply_patches(patches: Sequence[Path], version: str) -> list[str]:
    """Return commands that apply files beside the recipe, in their order, to the source in the current folder.

    version: the source, for the error of a patch that does not apply; ``patch`` prints the file and the hunk

    The unit needs the Debian package ``patch``. Raises OSError, UnicodeDecodeError.
    """
    commands = []
    for path in patches:
        text = path.read_bytes().decode()  # read_text would change line ends
        text = text if text.endswith("\n") else f"{text}\n"
        file = f"{FOLDER}/{path.name}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        # patch(1) removes the carriage returns of a patch whose first line ends with one
        binary = " --binary" if "\r" in text else ""
        error = shlex.quote(f"the patch {path.name} does not apply to {version}: change it for this version")
        commands += [
            f"mkdir -p {FOLDER}",
            written(file, text),
            f"echo {shlex.quote(f'{digest}  {file}')} | sha256sum --check --quiet",
            f"{{ patch -p1 --fuzz=0 --batch --forward{binary} --input={shlex.quote(file)} || "
            f"{{ echo {error} >&2; exit 1; }}; }}",
        ]
    return commands
