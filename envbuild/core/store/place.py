"""The place of a store: whose folder it is, and who else could have made it there."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.file_status import file_status
from envbuild.core.judged_links import ForeignLinkError, check_links
from envbuild.core.ownership import group_name, own_users, user_name
from envbuild.core.shell import shell_word
from envbuild.core.store.joined import has_joined
from envbuild.core.store.permissions import OTHERS, STICKY, is_shared
from envbuild.core.user_numbers import UNMAPPED, in_user_namespace


def check_place(root: Path, *, joining: bool = False) -> None:
    """Check that the folder `root` is this user's, or a group's, and not writable by every user; and that this user
    joined it, where that is needed, unless `joining`. Raises EngineError."""
    try:
        check_links(root.absolute(), own_users(), own=True)
    except ForeignLinkError:  # its owner could turn it to another folder while a command runs
        hint = "set ENVBUILD_STORE to a folder of your own"
        raise EngineError(f"a link of another user is on the way to the store {root}", hint=hint) from None
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
            hint="set ENVBUILD_STORE to a folder of your own",
        )
    if not joining and must_join(root) and not has_joined(root):
        join = f"ENVBUILD_STORE={shell_word(root)} envbuild store join"
        raise EngineError(
            f"the store {root} belongs to {name}, in a folder where every user can make one of any name",
            hint="set ENVBUILD_STORE to a folder of your own; or, if you trust that user and the group "
            f"{group_name(status.st_gid)} with what your images contain: {join}",
        )


def must_join(root: Path) -> bool:
    """Return whether a store is one of another user than root, in a folder where every user can make one of any
    name: that user may have chosen a name that this one would give to a store. In a namespace of this user root has no
    number, as all others, and counts as one."""
    return file_status(root).owner not in own_users() and is_anyones_place(root)


def is_anyones_place(root: Path) -> bool:
    """Return whether a user who is neither this one nor root can have made the folder `root`, or one above it, in a
    folder that every user may write, such as /tmp; also where a link of this user leads to."""
    return any(
        above.stat().st_mode & OTHERS and file_status(entry, follow=False).owner not in own_users()
        for path in (root.absolute(), root.resolve())
        for entry, above in itertools.pairwise((path, *path.parents))
    )


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
