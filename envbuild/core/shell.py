"""Words of commands that a message contains for the user to type."""

from __future__ import annotations

import shlex
from pathlib import Path


def shell_word(word: str | Path) -> str:
    """Return a path or a name as one word of a shell: with quotes where it needs them."""
    return shlex.quote(str(word))
