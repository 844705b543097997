"""Folders of the machine's root as a user namespace shows them: all users without a number there have one and the same
(user_namespaces(7)), so the owner of a folder does not show whether it is root's."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from envbuild.core.user_numbers import UNMAPPED, in_user_namespace, real_user

Place = tuple[int, int]


def is_unmapped(status: os.stat_result) -> bool:
    """Return whether the owner of a file has no number in this user namespace."""
    return status.st_uid == UNMAPPED and in_user_namespace()


def is_folder_of_root(folder: bytes, status: os.stat_result) -> bool:
    """Return whether a folder of a user without a number is root's by its place: it is / or in it, or the home folder
    of this user is below it."""
    return _place(os.stat(folder + b"/..")) == _place(os.stat("/")) or _place(status) in _above_home()  # noqa: PTH116


def _above_home() -> frozenset[Place]:
    """Return the folders above this user's home, by the user database: an environment can name any folder."""
    try:
        home = Path(pwd.getpwuid(real_user()).pw_dir)
        return frozenset(_place(folder.stat()) for path in (home, home.resolve()) for folder in path.parents)
    except (KeyError, OSError, RuntimeError):
        return frozenset()


def _place(status: os.stat_result) -> Place:
    return status.st_dev, status.st_ino
