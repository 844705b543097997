"""Folders that are projects: the files that make a folder one, and who put them there.

In a folder of a group each member can make ``recipes/``, also beside the ``site.yaml`` of the folder's owner. Such
files must neither end the commands of other members nor switch off what the owner states.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from envbuild.core.file_status import file_status
from envbuild.core.ownership import NO_DESCRIPTOR, find_at, find_renamers, own_users
from envbuild.core.regular_file import MAX_TEXT, mode_at
from envbuild.spec.site_text import is_site

SITE = "site.yaml"
KINDS = (("images", ".yaml"), ("recipes", ".py"), ("facts", ".yaml"), ("facts/derived", ".yaml"))


def is_project(folder: Path) -> bool:
    return next(project_files(folder), None) is not None


def project_files(folder: Path) -> Iterator[Path]:
    """Yield the files that make `folder` a project."""
    for name, suffix in KINDS:
        yield from (path for path in list_folder(folder / name) if path.suffix == suffix)
    if _is_site_file(folder / SITE):
        yield folder / SITE


def list_folder(folder: Path) -> list[Path]:
    """Return what is in a folder; nothing if it cannot be read."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def is_world_writable(folder: Path) -> bool:
    """Return whether every user may write a folder; not of one that this user cannot reach."""
    return bool(mode_at(folder) & stat.S_IWOTH)


def is_of_group(folder: Path) -> bool:
    """Return whether members of a group, or users of an access list, can put a project into another user's folder."""
    found = file_status(folder)
    return found.owner != os.geteuid() and bool(found.stat.st_mode & stat.S_IWGRP)


def find_own_files(folder: Path) -> list[Path]:
    """Return the files that make `folder` a project and belong to the caller, root or the owner of the folder, as the
    folders below it on their way do. Of a link, its own owner counts: who made it put it there."""
    users = own_users() | {file_status(folder).owner}
    return [path for path in project_files(folder) if users.issuperset(_owners(path, folder))]


def is_replaceable(path: Path) -> bool:
    """Return whether others than the caller can change the file at `path`, or put another one in its place."""
    users = own_users()
    return any(find_renamers(str(path), users)) or any(find_at(str(path), users))


def _owners(path: Path, folder: Path) -> Iterator[int]:
    """Yield the owners of `path` and of the folders between it and `folder`, as far as the caller may read them."""
    for place in (path, *path.parents):
        if place == folder:
            return
        try:
            yield file_status(place, follow=False).owner
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise


def _is_site_file(path: Path) -> bool:
    """Return whether a path is a site file, or may be one: of one that cannot be read, and of a link to a file system
    that is not mounted, a policy would be missing. The error is reported where it is read."""
    mode = mode_at(path, follow=False)  # 0: nothing, or in a folder that this user may not enter
    try:
        if stat.S_ISLNK(mode) and not path.exists():
            return True
        if not mode or not path.is_file():  # a pipe would never end
            return False
        with path.open("rb") as file:
            return is_site(file.read(MAX_TEXT))
    except FileNotFoundError:  # removed meanwhile
        return False
    except OSError:
        return True
