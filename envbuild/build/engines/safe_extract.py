"""Safe names: those in archives and in a unit's tree never lead out of their folder.

An archive of sources is unpacked with owners and modes that mean something here, and refused where it would leave its
folder. A path of a unit's tree is followed as the unit would, for which its root is the root.

Python unpacks sources like that from 3.11.4 on (``filter="data"``, PEP 706). Debian 12 has an older one, for which the
same rules are implemented here: https://docs.python.org/3/library/tarfile.html#tarfile.data_filter
"""

from __future__ import annotations

import copy
import os
import tarfile
from pathlib import Path


def extract_tar(tar: tarfile.TarFile, target: Path) -> None:
    """Unpack all of `tar` into the folder `target`, under umask 022. Raises TarError for members that would leave it,
    and for devices."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(target, filter="data")
    else:
        root = os.path.realpath(target)
        tar.extractall(target, (restrict_member(member, root) for member in tar), numeric_owner=True)


def restrict_member(member: tarfile.TarInfo, root: str) -> tarfile.TarInfo:
    """Return `member` as it may be unpacked into `root`, which has the members before it already. Raises TarError."""
    found = copy.copy(member)
    found.name = member.name.lstrip("/")
    check_inside(Path(root, found.name), root, member)
    if member.islnk() or member.issym():
        if member.linkname.startswith("/"):
            raise tarfile.TarError(f"{member.name!r} is a link to an absolute path")
        above = Path(root, found.name).parent if member.issym() else Path(root)
        check_inside(above / member.linkname, root, member)
    elif not (member.isreg() or member.isdir()):
        raise tarfile.TarError(f"{member.name!r} is a special file")
    if member.isreg() or member.islnk():
        found.mode = (member.mode & (0o755 if member.mode & 0o100 else 0o644)) | 0o600
    else:
        found.mode = 0o755
    found.uid, found.gid, found.uname, found.gname = os.getuid(), os.getgid(), "", ""
    return found


def check_inside(path: Path, root: str, member: tarfile.TarInfo) -> None:
    """Raise TarError where `path`, with the links that exist there already, leads out of `root`."""
    real = os.path.realpath(path)
    if os.path.commonpath((real, root)) != root:
        raise tarfile.TarError(f"{member.name!r} leads to {real!r}, which is outside of the folder")


def resolve_in_root(root: Path, path: str) -> Path:
    """Return where `path` of the tree at `root` is on this side, its symbolic links followed as inside of the tree.

    The last part may be missing. A bind target must never be reached through a link that leads out of a unit's root.
    """
    done = root
    parts = [part for part in path.split("/") if part not in ("", ".")][::-1]
    hops = 0
    while parts:
        part = parts.pop()
        if part == "..":
            done = done.parent if done != root else root
            continue
        step = done / part
        if step.is_symlink() and hops < 40:
            hops += 1
            link = str(step.readlink())
            if link.startswith("/"):
                done = root
            parts += [item for item in link.split("/") if item not in ("", ".")][::-1]
            continue
        done = step
    return done
