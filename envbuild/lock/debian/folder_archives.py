"""Archives that are folders of this machine. Reading one costs no network, so its state of now counts, and not the one
of the last hour."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from envbuild.core.regular_file import read_bounded
from envbuild.lock.debian.apt import AptSource

LARGEST = 16 << 20  # bytes of a Release file; Debian's has 0.2 MB


def have_moved_on(sources: Iterable[AptSource], lists: Path) -> bool:
    """Return whether a source that is a folder may have another Release file than the one that apt has in `lists`."""
    return any(has_moved_on(source, lists) for source in sources if "://" not in source.place)


def has_moved_on(source: AptSource, lists: Path) -> bool:
    """Return whether a folder has another Release file than apt; also if it cannot be read, or apt has none."""
    release = source.release(lists)
    if release is None:
        return True
    place = Path(source.place) / "dists" / source.suite / release.name.rpartition("_")[2]
    try:
        return read_bounded(place, LARGEST) != release.read_bytes()
    except OSError:
        return True
