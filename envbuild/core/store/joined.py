"""The stores of other users that this user joined, and folders of theirs with stores: owner, group, device, handle and
path of each, in the user's own configuration.

Nothing in a store could state that: its owner can rename what is in it, also folders that other commands of this user
made there. Device and handle are for a user namespace, which has one number for all other users; they can be others
after a restart, and on each machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.file_status import file_status
from envbuild.core.ownership import is_own_file
from envbuild.core.regular_file import read_bounded
from envbuild.core.shell import shell_word
from envbuild.core.store.json_files import write_atomic
from envbuild.core.unmapped_root import is_unmapped
from envbuild.core.user_folders import config_folder
from envbuild.core.userns import file_calls

NAME, MOST = "stores", 1 << 20  # bytes
LINE = re.compile(rb"(\d+ \d+) (?:(\d+ [0-9a-f]+) |- )?(/.*)", re.DOTALL)  # an older envbuild wrote no handle


def has_joined(place: Path) -> bool:
    """Return whether this user joined the store `place`, as one of its owner and its group."""
    inside = is_unmapped(file_status(place).stat)
    wanted = LINE.fullmatch(_line(place))
    lines = filter(None, map(LINE.fullmatch, _read()))
    key = (2, 3) if inside else (1, 3)
    if wanted is None or None in wanted.group(*key):
        return False
    return any(line.group(*key) == wanted.group(*key) for line in lines)


def join_stores(places: Iterable[Path]) -> None:
    """Record that this user uses these stores. Raises EngineError for a user without a home, and in a user namespace
    that does not show whose they are; OSError."""
    folder, lines = config_folder(), {place: _line(place) for place in places}
    if folder is None:
        raise EngineError(
            "this user has no home folder, where it is recorded which stores are used",
            hint="set ENVBUILD_STORE to a folder of your own",
        )
    for place, line in lines.items():
        if b"\n" in line:
            raise EngineError(
                f"the path of the store has an end of line: {place}", hint="set ENVBUILD_STORE to a folder of your own"
            )
        if is_unmapped(file_status(place).stat):
            raise EngineError(
                f"the owner of {place} has no number in this user namespace, so it is not known who that is",
                hint=f"type it outside of buildah unshare: ENVBUILD_STORE={shell_word(place)} envbuild store join",
            )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = b"".join(one + b"\n" for one in sorted({*_read(), *lines.values()}))
    write_atomic(folder / NAME, lambda file: file.write(content), 0o600)


def _line(place: Path) -> bytes:
    folder = os.open(place, os.O_PATH | os.O_CLOEXEC)
    try:
        found = file_status(folder)
        try:
            known = f"{found.stat.st_dev} {file_calls.file_handle(folder).hex()}"
        except OSError:  # its file system has no handles
            known = "-"
    finally:
        os.close(folder)
    return b"%d %d %s %s" % (found.owner, found.stat.st_gid, known.encode(), os.fsencode(place.resolve()))


def _read() -> list[bytes]:
    """Return the stores in the user's file; none if another user may have written it."""
    folder = config_folder()
    try:
        if folder is None or not is_own_file(folder / NAME):
            return []
        return read_bounded(folder / NAME, MOST).split(b"\n")[:-1]
    except (OSError, ValueError):
        return []
