"""Records of built images: a run without a change finds the record of the run before it, and ends.

A record is images/KEY.json, where KEY is a digest of all that decides the file's bytes. It has what was made, size and
time of the file, and what the store must retain for it while a link points at it (`envbuild.core.store.gc`).

In a store that a group shares, another member may have written it. So it names files, which are those of artifacts/
alone, and never a path. The evidence is each member's own: artifacts/ in the folder of the member (`Store.own`).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from envbuild.core.code_digest import code_digest
from envbuild.core.console import Reporter
from envbuild.core.digest import is_oversized, reported_digest
from envbuild.core.errors import VerifyError
from envbuild.core.file_status import file_status
from envbuild.core.ownership import own_users
from envbuild.core.regular_file import open_regular
from envbuild.core.store.permissions import is_shared, own_place
from envbuild.core.store.store import Store, read_json, stamp, write_json

LONGEST = 255  # bytes of a file name
FILES = ("artifact", "evidence")  # keys of files in artifacts/


def record_path(store: Store, decides: Iterable[str | bytes], *, made_by_code: bool = True) -> Path:
    """Return the path of the record of a file, named by all that `decides` its bytes, and by envbuild's own code unless
    that decides nothing: what was published has the same bytes with each release."""
    digest = hashlib.sha256()
    for part in (*((code_digest(),) if made_by_code else ()), *decides):
        content = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(content)}\n".encode() + content)
    return store.root / "images" / f"{digest.hexdigest()}.json"


def read_record(path: Path) -> dict[str, Any] | None:
    """Return what was made, with the paths of its files, if its ``artifact`` exists unchanged; else None."""
    value = parse_record(read_json(path))
    if value is None:
        return None
    root = path.parent.parent
    places = {"artifact": root, "evidence": own_place(root)}
    files = {key: str(places[key] / "artifacts" / name) for key, name in file_names(value).items()}
    made: dict[str, Any] = {**value["made"], **files}
    try:
        found = Path(made["artifact"]).lstat()
    except (OSError, ValueError):  # no file, or no path
        return None
    unchanged = stat.S_ISREG(found.st_mode) and value["stat"] == [found.st_size, found.st_mtime_ns]
    return made if unchanged and not has_holes(Path(made["artifact"])) else None


def recorded_stamp(path: Path) -> tuple[int, int] | None:
    """Return size and time (ns) of the file of a record, as the record has them; None if there is none."""
    value = parse_record(read_json(path))
    found = value["stat"] if value else []
    return (found[0], found[1]) if len(found) == 2 and all(isinstance(item, int) for item in found) else None


def has_holes(file: Path) -> bool:
    """Return whether a file is one of holes, which another member of a group can put there: it is written again."""
    try:
        with open_regular(file, follow=False) as opened:
            return is_oversized(opened.fileno())
    except OSError:
        return False


def is_unchanged(file: Path, sha256: str, reporter: Reporter) -> bool:
    """Return whether a file of artifacts/, whose size and time are those of a record, has the sha256 that another
    source than the record names. In a store that a group shares it is read: another member can write the record, and
    give the name to any file, also to one of this user. So is another user's file in a store that was a group's."""
    try:
        own = not is_shared(file.parent.parent) and file_status(file, follow=False).owner in own_users()
        return own or reported_digest(file, reporter, follow=False) == sha256
    except (OSError, VerifyError):  # removed meanwhile, or a file of holes
        return False


def file_names(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of a record's files, by key. A record of an older envbuild has paths."""
    return {key: Path(record["made"][key]).name for key in FILES if record["made"].get(key)}


def parse_record(value: Any) -> dict[str, Any] | None:
    """Return a JSON value that is a record; None if it is not one."""
    try:
        made, holds = value["made"], value["holds"]
        lists = (value["stat"], made["layers"], holds["units"], holds["blobs"])
        names = (*made["layers"], *holds["units"], *holds["blobs"])
        texts = (made["artifact"], made.get("evidence", ""), *names)
    except (AttributeError, KeyError, TypeError):
        return None
    whole = all(isinstance(item, list) for item in lists) and all(isinstance(text, str) for text in texts)
    whole = whole and bool(made["artifact"]) and all(map(is_name, names)) and all(map(can_be_path, texts))
    found: dict[str, Any] = value
    return found if whole else None


def is_name(name: str) -> bool:
    """Return whether a text can be the name of a unit, layer or blob of a store."""
    return name.isascii() and name.isprintable() and "/" not in name and len(name) <= LONGEST


def can_be_path(text: str) -> bool:
    """Return whether the kernel can look for a file of this path: another user may have written it."""
    try:
        return "\0" not in text and all(len(part) <= LONGEST for part in os.fsencode(text).split(b"/"))
    except UnicodeEncodeError:
        return False


def write_record(
    path: Path,
    made: Mapping[str, Any],
    *,
    units: Iterable[str] = (),
    blobs: Iterable[str] = (),
    stamped: tuple[int, int] | None = None,
) -> None:
    """Record what was made.

    made: ``artifact`` is the file in artifacts/, ``evidence`` the one with what was verified, ``layers`` the layers in
        it.
    units, blobs: keys and digests that the artifact requires in the store.
    stamped: size and time (ns) of the file that was made: another process may have given its name to another one.
    """
    value = {
        "made": made,
        "stat": list(stamped or stamp(Path(made["artifact"]))),
        "holds": {"units": sorted(units), "blobs": sorted(blobs)},
    }
    write_json(path, {**value, "made": {**made, **file_names(value)}})


def forget_damaged(path: Path | None) -> None:
    """Let no later run take the file of a record for unchanged, because something of it in the store is damaged.

    The record remains, because the next run uses the layers and inputs that it preserves in the store.
    """
    value = read_json(path) if path else None
    if path and isinstance(value, dict):
        write_json(path, {**value, "stat": []})
