"""Files of an image that a newer one under the same lock replaced.

Each edit of a recipe or of a project folder makes a file of a new name (`envbuild.export.project_image`), and an image
may have 20 GB. The one before the current file remains: a job that names it may wait in a queue.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from envbuild.core.file_status import file_status
from envbuild.core.store.gc import stem

STEM = re.compile(r"(?P<lock>.+-[0-9a-f]{12})-[0-9a-f]{8}")  # NAME-<lock digest>-<configuration>


def remove_former(artifact: Path) -> list[str]:
    """Remove the files of this user beside an artifact that are of the same image and lock, with their documents: all
    but those of the artifact and of the newest other one. Return their names."""
    current = STEM.fullmatch(stem(artifact.name))
    if current is None:
        return []
    folder, own = artifact.parent, re.compile(f"{re.escape(current['lock'])}-[0-9a-f]{{8}}")
    found: dict[str, list[tuple[float, str]]] = {}
    for name in sorted(path.name for path in folder.iterdir()):
        if own.fullmatch(stem(name)) and stem(name) != current[0]:
            with contextlib.suppress(OSError):
                status = file_status(folder / name, follow=False)
                if stat.S_ISREG(status.stat.st_mode) and status.owner == os.geteuid():
                    found.setdefault(stem(name), []).append((status.stat.st_mtime, name))
    removed = []
    for files in sorted(found.values(), key=max)[:-1]:
        for _, name in files:
            with contextlib.suppress(OSError):
                (folder / name).unlink()
                removed.append(name)
    return sorted(removed)
