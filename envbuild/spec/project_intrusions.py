"""The paths of a project that decide what it does, and by which others than the caller can change that."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from envbuild.core.ownership import Intrusion, find_at, find_renamers, own_users

FOLDERS = ("images", "recipes", "targets", "facts", "facts/derived")
SITE = "site.yaml"
MOST_JUDGED = 20  # paths below recipes/ after one that makes the project untrusted


def find_intrusions(root: Path, found: Collection[Intrusion] = ()) -> Iterator[Intrusion]:
    """Yield every path of the project `root` that others than the caller can change.

    found: those for which the project is not trusted, to which the caller of this function adds. After the first one,
    no link below ``recipes/`` is followed, and few further paths are judged: one who can write there can make millions,
    and links to anywhere.
    """
    real, users = os.path.realpath(root), own_users()
    yield from find_renamers(str(root), users)
    for path in (real, *(f"{real}/{name}" for name in (*FOLDERS, SITE))):
        yield from find_at(path, users)
    judged = 0
    for path in paths_below(f"{real}/recipes", found):
        judged += bool(found)
        if judged > MOST_JUDGED:
            return
        yield from find_at(path, users)


def paths_below(top: str, found: Collection[Intrusion] = ()) -> Iterator[str]:
    """Yield the files and folders below a folder, through links, unless something was `found` by then.

    Recipes read files beside them, and Python runs the compiled form of a recipe in place of an unchanged one.
    """
    if found and os.path.islink(top):  # noqa: PTH114 - as in find_at
        return
    seen: set[tuple[int, int]] = set()  # links may lead around in a circle
    for folder, folders, files in os.walk(top, followlinks=True):
        try:
            status = os.stat(folder)  # noqa: PTH116 - as in find_at
        except OSError:  # removed meanwhile, or closed to this user, who then reads nothing there
            folders.clear()
            continue
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        yield from (f"{folder}/{name}" for name in sorted((*folders, *files)))
        if found:
            folders[:] = [name for name in folders if not os.path.islink(f"{folder}/{name}")]  # noqa: PTH114
