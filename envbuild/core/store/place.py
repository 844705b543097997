"""The place of a store: whose folder it is, and who else could have made it there."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.file_status import file_status
from envbuild.core.judged_links import ForeignLinkError, check_links
from envbuild.core.ownership import closed_groups, find_renamer, group_name, own_users, user_name
from envbuild.core.shell import shell_word
from envbuild.core.store.joined import has_joined
from envbuild.core.store.mark import is_store_of
from envbuild.core.store.permissions import OTHERS, STICKY, is_shared
from envbuild.core.unmapped_root import is_unmapped
from envbuild.core.user_numbers import UNMAPPED, in_user_namespace

OTHER_STORE = "set ENVBUILD_STORE to a folder of your own"


def check_place(root: Path, *, joining: bool = False, is_new: bool = False) -> None:
    """Check that the folder `root` is this user's, or a group's, and not writable by every user; and that this user
    joined it, or a folder on the way, where that is needed, unless `joining`. is_new: it need not exist; otherwise the
    owner of a folder on the way could take it away for this moment. Raises EngineError, OSError."""
    try:
        with contextlib.suppress(*((FileNotFoundError,) if is_new else ())):
            check_links(root.absolute(), own_users(), own=True)
    except ForeignLinkError:  # its owner could turn it to another folder while a command runs
        raise EngineError(f"a link of another user is on the way to the store {root}", hint=OTHER_STORE) from None
    if not is_new or root.is_dir():
        _check_owner(root)
    places = [] if joining else [path for path in find_strange(root, is_new=is_new) if not has_joined(path)]
    if places:
        owners = " and ".join(f"{_name_place(path, root)} belongs to {describe_owner(path)[0]}" for path in places)
        trust = ", and ".join(dict.fromkeys(_name_trust(path, root) for path in places))
        command = f"ENVBUILD_STORE={shell_word(root)} envbuild store"
        if any(is_unmapped(file_status(path).stat) for path in places):
            step = "join" if root.is_dir() and file_status(root).owner not in own_users() else "check"
            other = f"type first, outside of this user namespace, which does not show who that is: {command} {step}"
        else:
            other = f"if you trust {trust}: {command} join"
        raise EngineError(
            f"{owners}, in a folder where other users can make one of any name", hint=f"{OTHER_STORE}; or, {other}"
        )


def _name_place(path: Path, root: Path) -> str:
    return f"the store {root}" if _is_store(path, root) else f"the folder {path}, in which the store {root} is,"


def _name_trust(path: Path, root: Path) -> str:
    owner, group = describe_owner(path)
    if _is_store(path, root):
        return f"{owner} and the group {group} with what your images contain"
    return f"{owner} with all that your commands do"


def _is_store(path: Path, root: Path) -> bool:
    return path in (root.absolute(), root.resolve())


def describe_owner(path: Path) -> tuple[str, str]:
    """Return the names of the owner and the group of a folder."""
    found = file_status(path)
    return user_name(found.owner), group_name(found.stat.st_gid)


def _check_owner(root: Path) -> None:
    """Check who can write the folder of a store. Raises EngineError."""
    found = file_status(root)
    status, owner = found.stat, found.owner
    name, own = user_name(owner), may_change(owner)
    if is_root_of(owner) and owner not in own_users():
        raise EngineError(
            f"the store {root} belongs to {name}, who could make commands of root change any file",
            hint="set ENVBUILD_STORE to a folder of root, or work as that user",
        )
    if is_open(status.st_mode):
        raise EngineError(
            f"every user may write the store {root}, and could make your commands change files elsewhere",
            hint=f"chmod -R o-w {shell_word(root)}"
            if own
            else f"set ENVBUILD_STORE to a new folder, such as {shell_word(root / 'envbuild')}",
        )
    if not is_shared(root) and owner not in own_users():
        raise EngineError(
            f"the store {root} belongs to {name}, who could make your commands change files elsewhere",
            hint=OTHER_STORE,
        )


def check_builder(root: Path) -> None:
    """Check that root does not work in the store of the user who called sudo: the trees of layers there have that
    user's subordinate ids, which root would take for the ids in the image, and that user could neither enter nor remove
    the trees of root. In a store that a group shares each user has trees of their own. Raises EngineError, OSError."""
    owner = file_status(root).owner
    if not is_shared(root) and owner != os.geteuid() and is_root_of(owner):
        name = user_name(owner)
        raise EngineError(
            f"the store {root} belongs to {name}, because of whose ids root cannot use the layers there",
            hint=f"work as {name}, without sudo, or set ENVBUILD_STORE to a folder of root",
        )


def places_to_join(root: Path) -> set[Path]:
    """Return the folders that a user who joins a store records: those of `find_strange`, the store, and the folders on
    the way to it that are strange in a user namespace alone, where root has the number of all others."""
    inside = _find_strange(root, inside=True) if os.geteuid() else ()
    return {*find_strange(root), *inside, *([root.absolute()] if root.is_dir() else [])}


def find_strange(root: Path, *, is_new: bool = True) -> Iterator[Path]:
    """Yield each folder on the way to a store, and the store, that a user can have made who chose the name because it
    is one that this user would give to it: a user who is neither this one nor root, in a folder in which yet another
    one can make entries. Also where a link of this user leads to. A folder on the way is none if its owner has the
    folder above it, too: that user can exchange everything there, and was trusted with what is in it.

    Not above a store that a user who is not root has already: it would end what works, and is not the first command
    there; other programs, and the cache of facts, make the folder of a store, too. In a namespace of this user root has
    no number, as all others, and counts as one."""
    return _find_strange(root, is_new=is_new)


def _find_strange(root: Path, *, is_new: bool = True, inside: bool = False) -> Iterator[Path]:
    """Yield what `find_strange` yields; `inside`: in a user namespace of this user, of which it is outside."""
    users, groups = (own_users() - {0}, frozenset[int]) if inside else (own_users(), closed_groups)
    has_store = root.is_dir() and file_status(root).owner in users and is_store_of(root, users)
    if has_store and os.geteuid():
        return
    for path in dict.fromkeys((root.absolute(), root.resolve())):
        for entry, above in itertools.pairwise((path, *path.parents)):
            try:
                found = file_status(entry, follow=False)
            except FileNotFoundError:
                if not is_new:
                    raise
                continue
            if found.owner in users or (has_store and is_unmapped(found.stat)):
                continue
            is_owners = found.owner == file_status(above).owner and not (inside or is_unmapped(found.stat))
            if entry != path and is_owners:
                continue
            if find_renamer(os.fsencode(above), users | {found.owner}, groups, sticky=False):
                yield entry


def is_root_of(user: int) -> bool:
    """Return whether this process is root, and can change what `user` has: in a user namespace, that of a container
    too, users of the machine have no number, and root is one of them."""
    return os.geteuid() == 0 and not (user == UNMAPPED and in_user_namespace())


def is_open(mode: int) -> bool:
    """Return whether every user may replace what is in a folder; not in one like /tmp."""
    return bool(mode & OTHERS) and not mode & STICKY


def may_change(owner: int) -> bool:
    """Return whether this user may change the mode of what `owner` has."""
    return is_root_of(owner) or owner == os.geteuid()
