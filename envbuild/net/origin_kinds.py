"""The kinds of origins: one row for each. An origin (``KIND:REST``) names an input without a host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class OriginKind(NamedTuple):
    """A kind of origin.

    `folder`: the one of an offline mirror that has its inputs (``sources`` is flat: their file names are unique);
    empty: an offline mirror needs none of them.
    `source`: a recipe's `Archive` or `Git` may have it.
    `archive`: it is a distribution's own; the rest of the origin is a suite, not a folder.
    `signed`: its package lists are signed.
    `names_host`: the rest of the origin begins with the host that has it, unless there is a mirror or a public home.
    `release`, `tarball`: paths below a repository, of origins ``KIND:REPOSITORY@TAG``: of a file that the project
    released, of a tarball that the place makes of the tree. Of other origins the rest is the path.
    `mirrored`: how much of an origin one mirror serves, in hints: its ``kind``, the ``whole`` origin, its
    ``repository`` (up to the tag), its ``first`` part.
    """

    folder: str
    source: bool = False
    archive: bool = False
    signed: bool = False
    names_host: bool = False
    release: str = ""
    tarball: str = ""
    mirrored: str = "kind"


LOCAL = "local"  # in place of a host: base images from archives and layouts, which only an offline mirror has

ORIGINS = {
    "debian": OriginKind("debian", source=True, archive=True, signed=True),
    "debian-security": OriginKind("debian-security", archive=True, signed=True),
    "ubuntu": OriginKind("ubuntu", source=True, archive=True, signed=True),
    "python": OriginKind("python"),
    "apt": OriginKind("apt", signed=True, mirrored="whole"),
    "pip": OriginKind("pip", mirrored="whole"),
    "oci": OriginKind("oci", names_host=True, mirrored="first"),
    "github": OriginKind(
        "sources",
        source=True,
        release="releases/download/{tag}/{file}",
        tarball="archive/{tag}.tar.gz",
        mirrored="repository",
    ),
    "gitlab": OriginKind(
        "sources",
        source=True,
        release="-/releases/{tag}/downloads/{file}",
        tarball="-/archive/{tag}/{file}",
        mirrored="repository",
    ),
    # of other hosts: submodules, which are in the tarballs of commits, and projects of python-packages
    "git": OriginKind("sources", names_host=True, mirrored="repository"),
    "file": OriginKind("sources", source=True),
    "mirror": OriginKind("sources", source=True),
    "vendor": OriginKind("sources", source=True, mirrored="first"),
}
ORIGIN_KINDS = tuple(ORIGINS)
ARCHIVES = tuple(kind for kind, row in ORIGINS.items() if row.archive)
SIGNED_KINDS = tuple(kind for kind, row in ORIGINS.items() if row.signed)
SOURCE_KINDS = tuple(sorted((kind for kind, row in ORIGINS.items() if row.source), key=ARCHIVES.__contains__))
MIRROR_FOLDERS = {kind: row.folder for kind, row in ORIGINS.items() if row.folder}


def longest_prefix(prefixes: Iterable[str], origin: str) -> str:
    """Return the longest of `prefixes` that `origin` begins with, empty when there is none. A prefix ends where a part
    of a name does: ``github:openucx/ucx`` does not match ``github:openucx/ucx-extra``.
    """
    fitting = [
        prefix
        for prefix in prefixes
        if origin.startswith(prefix)
        and (prefix.endswith((":", "/")) or origin[len(prefix) :][:1] in ("", "/", "@", ":"))
    ]
    return max(fitting, key=len, default="")
