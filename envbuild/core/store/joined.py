"""The statement of a user that a store of another user is used, in the user's own folder of it.

The folder alone states nothing: other commands make folders of that user in places that another one can rename. So
the file names the store, where it is.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from envbuild.core.regular_file import read_bounded
from envbuild.core.shell import shell_word

NAME, MOST = "joined", 1 << 14  # bytes


def has_joined(own: Path, root: Path) -> bool:
    """Return whether the user of the folder `own` joined the store `root`."""
    try:
        return read_bounded(own / NAME, MOST, follow=False).strip() == os.fsencode(root.resolve())
    except (OSError, ValueError):
        return False


def record_joined(own: Path, root: Path) -> None:
    """Record that the user of the folder `own` uses the store `root`; nothing where that cannot be written."""
    if has_joined(own, root):
        return
    with contextlib.suppress(OSError):
        (own / NAME).unlink(missing_ok=True)
        (own / NAME).write_bytes(os.fsencode(root.resolve()) + b"\n")


def joining_command(root: Path) -> str:
    """Return the command with which this user joins the store `root`."""
    place, own = root.resolve(), root.resolve() / f"user-{os.geteuid()}"
    return f"mkdir -p -m 700 {shell_word(own)} && echo {shell_word(place)} > {shell_word(own / NAME)}"
