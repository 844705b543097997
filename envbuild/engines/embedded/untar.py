"""Unpack a tar archive of sources so that nothing leaves its folder, with owners and modes that mean something here.

Python does that from 3.11.4 on (``filter="data"``, PEP 706). Debian 12 has an older one, for which the same rules stand
here: https://docs.python.org/3/library/tarfile.html#tarfile.data_filter
"""

from __future__ import annotations

import copy
import os
import tarfile
from pathlib import Path


def extract(tar: tarfile.TarFile, target: Path) -> None:
    """Unpack all of `tar` into the folder `target`, under umask 022. Raises TarError for what would leave it, and for
    devices."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(target, filter="data")
    else:
        root = os.path.realpath(target)
        tar.extractall(target, (tame(member, root) for member in tar), numeric_owner=True)


def tame(member: tarfile.TarInfo, root: str) -> tarfile.TarInfo:
    """`member` as it may be unpacked into `root`, where what came before it lies already. Raises TarError."""
    found = copy.copy(member)
    found.name = member.name.lstrip("/")
    inside(Path(root, found.name), root, member)
    if member.islnk() or member.issym():
        if member.linkname.startswith("/"):
            raise tarfile.TarError(f"{member.name!r} is a link to an absolute path")
        above = Path(root, found.name).parent if member.issym() else Path(root)
        inside(above / member.linkname, root, member)
    elif not (member.isreg() or member.isdir()):
        raise tarfile.TarError(f"{member.name!r} is a special file")
    if member.isreg() or member.islnk():
        found.mode = (member.mode & (0o755 if member.mode & 0o100 else 0o644)) | 0o600
    else:
        found.mode = 0o755
    found.uid, found.gid, found.uname, found.gname = os.getuid(), os.getgid(), "", ""
    return found


def inside(path: Path, root: str, member: tarfile.TarInfo) -> None:
    real = os.path.realpath(path)
    if os.path.commonpath((real, root)) != root:
        raise tarfile.TarError(f"{member.name!r} leads to {real!r}, which is outside of the folder")
