"""The folders of a store: what a group shares, what is one user's, and which hold trees that others may not enter."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from envbuild.core.engines import CACHES as ENGINE_CACHES
from envbuild.core.errors import FREE_SOME, FULL_DISK, EngineError
from envbuild.core.file_status import file_status
from envbuild.core.free_space import has_room_for_files
from envbuild.core.ownership import Intrusion, closed_groups, find_intrusion, own_users, user_name
from envbuild.core.store.access import OWN_STORE, check_readable
from envbuild.core.store.former_members import check_former_members, has_entries
from envbuild.core.store.mark import mark_shared, mark_store
from envbuild.core.store.members import LOCKS, check_entry, check_members, has_folders
from envbuild.core.store.permissions import (
    close_folder,
    is_shared,
    make_own_place,
    make_shared_folder,
    make_store_folder,
    own_place,
)
from envbuild.core.store.place import check_builder, check_place

FOLDERS = ("blobs", "blobs/sha256", "units", "packs", "images", "artifacts", "locks", "exports", "control")
CONTENT = ("units", "packs", "blobs/sha256", "images", "artifacts")  # of images
OWN_FOLDERS = ("layers", "tmp", "logs", "partial")
RECORDS = ("published", "leases", "resolved", "measured", "verified")
PRIVATE = (*OWN_FOLDERS, *ENGINE_CACHES, "apt", "git", "uv", "ccache", "base", *RECORDS)
CLOSED = ("layers", "tmp")  # they hold trees of files


def prepare_store(root: Path, report: Callable[[str], object], *, may_be_full: bool = False) -> None:
    """Make the folders of the store `root`, and close those of an older one that others could enter.

    report: called with a line about that. may_be_full: the command removes what fills the disk, and makes no file.
    Raises EngineError when the place cannot be written, when it is a folder with other content (`mark_store`), and when
    another user could make this one's commands change files elsewhere (`check_members`), or could before
    (`check_former_members`).
    """
    try:
        check_place(root, is_new=True)  # before anything is made on the way to it
        make_store_folder(root)
        check_place(root)
        check_builder(root)
        mark_store(root)
        closed = close_trees(root)
        check_former_group(root)
        check_members(root, FOLDERS, PRIVATE, report)
        if is_shared(root) and root.stat().st_uid == os.geteuid() and root.stat().st_gid not in closed_groups():
            mark_shared(root)
        if close_folder(root / LOCKS, 0o007 if is_shared(root) else 0o077):
            report(f"store {root}: other users could hold its locks; closed now")
        for name in FOLDERS:
            make_shared_folder(root / name, sticky=has_folders(name, FOLDERS), closed=name == LOCKS)
        own = make_own_place(root)
        for name in OWN_FOLDERS:
            (own / name).mkdir(mode=0o700, exist_ok=True)
            check_entry(own / name)
        try_to_write(own / "tmp", may_be_full=may_be_full)
    except OSError as error:
        if error.errno in FULL_DISK:
            hint = FREE_SOME + _no_files(root)
            raise EngineError(f"the store {root} is full: {error.strerror}", hint=hint) from error
        check_readable(root)
        why = "it is not a folder" if error.errno == errno.EEXIST else os.strerror(error.errno or errno.EIO)
        raise EngineError(f"the store {root} cannot be written: {why}", hint=OWN_STORE) from error
    if closed:
        names = ", ".join(closed)
        report(f"store {root}: other users could enter {names}, where setuid programs may be; closed now")


def check_former_group(root: Path) -> None:
    """Refuse a store of another user (`check_place`), and one that was a group's, and is none now
    (`check_former_members`), for commands that read it. Raises EngineError.

    One that is closed to this user is reported by the commands that read it (`check_readable`)."""
    with contextlib.suppress(PermissionError):
        if root.is_dir():
            check_place(root)
            if not is_shared(root):
                check_former_members(root, FOLDERS, CONTENT)


def close_trees(root: Path) -> list[str]:
    """Close the folders with trees that others could enter; return their names."""
    places = dict.fromkeys((own_place(root), root))  # an older envbuild let a group share these, too
    names = [name for place in places for name in (*CLOSED, *ENGINE_CACHES) if close_folder(place / name)]
    return [f"{name}/" for name in dict.fromkeys(names)]


def _no_files(root: Path) -> str:
    """Return the rest of a hint where a disk can have no file more: `store gc` needs none in a store that was used."""
    there = next(path for path in (root, *root.parents) if path.exists())
    if has_room_for_files(there, 1):
        return ""
    first = "" if has_entries(root / LOCKS) else ": remove one outside of the store first"
    return f"; no file more fits there (df -i){first}"


def try_to_write(folder: Path, *, may_be_full: bool) -> None:
    """Make a file in a folder; a killed process leaves none where the file system knows files without a name."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600))
    except OSError as error:
        if may_be_full and error.errno in FULL_DISK:
            return
        probe = folder / f".probe-{os.urandom(4).hex()}"
        probe.touch()
        probe.unlink()


def find_store_intruder(root: Path) -> Intrusion | None:
    """Return how others than this user can replace what the store `root` has, or could when it was a store of a group:
    records of units, packs of layers, files; None if they cannot.

    A store of a group counts also if this user is alone in the group today: members who left it wrote there."""
    users = own_users()
    folders = (root, *map(root.joinpath, FOLDERS))
    entries = (Path(entry) for folder in map(root.joinpath, CONTENT) for entry in _entries(folder))
    found = (find_intrusion(str(place), users, frozenset) for place in folders)
    return next(filter(None, found), None) or next(filter(None, (_find_writer(path, users) for path in entries)), None)


def _find_writer(path: Path, users: frozenset[int]) -> Intrusion | None:
    if (owner := file_status(path, follow=False).owner) not in users:
        return Intrusion(path, f"belongs to {user_name(owner)}", False)
    return find_intrusion(str(path), users, frozenset)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
