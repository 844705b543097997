"""Archives by origin: where a site may have them, and their digest.

An origin names what a source is, not where it lies: ``github:openucx/ucx@v1.20.1``, ``file:ucx-1.20.1.tar.gz``,
``mirror:path/below/it``. What a site's mirror holds below a prefix is tried in the shapes in which such mirrors exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from envbuild.errors import InputError
from envbuild.lock.lockfile import SourceFile
from envbuild.lock.transfer import Transfer, Unobtained
from envbuild.lock.transport import join
from envbuild.recipe import Archive
from envbuild.site import Site

FORGE = re.compile(r"(?P<repository>[^@]+)@(?P<tag>.+)")


def candidates(site: Site, origin: str, file: str) -> list[str]:
    """Addresses and paths, in the order of asking, at which the site's mirrors may have `origin` as a file named
    `file`.
    """
    rest, places = site.places(origin)
    names = [rest, f"{rest}/{file}", file]
    forge = FORGE.fullmatch(rest)
    if forge:
        repository, tag = forge["repository"], forge["tag"]
        # A released tarball (made by the project, so with its configure script) is better than one that the forge makes
        # of the tree.
        names = [
            f"{repository}/releases/download/{tag}/{file}",
            f"{repository}/{file}",
            f"{repository.rpartition('/')[2]}/{file}",
            f"{repository}@{tag}/{file}",
            f"{repository}/archive/{tag}.tar.gz",
            file,
        ]
        if not file.endswith((".tar.gz", ".tgz")):
            names.remove(f"{repository}/archive/{tag}.tar.gz")
    return list(dict.fromkeys(join(place, name) for place in places for name in names if name))


def lock_source(site: Site, transfer: Transfer, archive: Archive, known: Mapping[str, SourceFile]) -> SourceFile:
    """The archive with its digest: as the recipe says, else as `known` (file name → an earlier lock's entry), else
    fetched and computed.
    """
    earlier = known.get(archive.file)
    if earlier and earlier.origin == archive.origin and archive.sha256 in ("", earlier.sha256):
        return earlier
    if archive.sha256:
        return SourceFile(archive.file, archive.origin, archive.sha256.lower())
    places = candidates(site, archive.origin, archive.file)
    try:
        sha256, size = transfer.obtain(places)
    except Unobtained as error:
        raise unobtainable(archive.origin, archive.file, "", error.misses) from None
    return SourceFile(archive.file, archive.origin, sha256, size)


def unobtainable(origin: str, file: str, sha256: str, misses: list[tuple[str, str]]) -> InputError:
    """The error for a source that no mirror has."""
    digest = f" (sha256 {sha256})" if sha256 else ""
    looked = "".join(f"\n  {place}: {why}" for place, why in misses) or "\n  nowhere: the site names no mirror for it"
    prefix = origin[: origin.find(":") + 1]
    return InputError(
        f"the source {origin} ({file}){digest} cannot be had; looked at:{looked}",
        hint=f"write into site.yaml:  mirrors: {{{prefix} [ADDRESS-OR-FOLDER]}}  and put {file} there",
    )
