"""Files that left an archive: Debian and Ubuntu remove a package from the pool when a newer one replaces it, and have
snapshot services, which serve the archive as it was at a time.

The time is the date of the archive's Release file in the lock. A snapshot service returns the last import before a
time, so that a later one than the date is tried first: the import that has this Release file. Debian's cuts connections
when it gets many requests (Debian bugs 977653, 960304, 969906), so one file at a time is requested, with long pauses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from envbuild.lock.model import DebianFile, Lock, SourceFile
from envbuild.net.origin_kinds import ARCHIVES
from envbuild.net.public_homes import Home, find_homes
from envbuild.net.site import Site
from envbuild.net.supply import SupplyKind
from envbuild.net.urls import join

PATIENCE = 20  # times the pauses of other downloads
TIME = "%Y%m%dT%H%M%SZ"
AFTER = (0.5, 0, 3)  # days after the date of the Release file
SEARCH = (0.5, 7, 14, 30, 45, 60, 75, 90, 120, 180, 365)  # days after the date of the lock: that of the archive is open
BACK = (0.5, -30, -90, -180, -365, -730)  # a source that a recipe names: it may have left the pool before


def archive_dates(lock: Lock) -> dict[str, str]:
    """Return archive → date of its Release file (RFC 3339), as the lock has them; ``""`` → the date of the lock."""
    return {**lock.releases, "": datetime.fromtimestamp(lock.epoch, UTC).isoformat()}


def snapshot_places(
    site: Site, entry: DebianFile | SourceFile, dates: Mapping[str, str], now: datetime | None = None
) -> list[str]:
    """Return the addresses at which a snapshot service may have a file that left its archive.

    None if the site names mirrors of the archive, or nothing outside of them (``upstream: false``), or if no snapshot
    service is known.
    """
    origin = entry.archive if isinstance(entry, DebianFile) else entry.origin
    kind, _, rest = origin.partition(":")
    if kind not in ARCHIVES or not dates or site.supply(origin).by not in (SupplyKind.HOST, SupplyKind.PUBLIC):
        return []
    if isinstance(entry, DebianFile):
        path, arch = entry.path, package_arch(entry.file)
        times = _times(dates[origin], AFTER, now) if origin in dates else _times(dates[""], SEARCH, now)
    else:
        path, arch = rest if rest.rpartition("/")[2] == entry.file else f"{rest}/{entry.file}", ""
        latest = max((date for name, date in dates.items() if name.startswith(f"{kind}:")), default=dates[""])
        times = _times(latest, BACK, now)
    homes = [home for home in find_homes(origin, arch) if home.snapshot]
    return [join(root, path) for home in homes[:1] for root in _roots(home, times)]


def package_arch(file: str) -> str:
    """Return the architecture that the file name of a Debian package states; empty for one of all architectures."""
    arch = file.removesuffix(".deb").rpartition("_")[2]
    return "" if arch == "all" else arch


def _roots(home: Home, times: Iterable[datetime]) -> list[str]:
    """Return the address of the archive at each of `times`."""
    since = home.snapshot_since
    return [home.snapshot.format(time=time.strftime(TIME)) for time in times if time.date().isoformat() >= since]


def _times(date: str, days: Iterable[float], now: datetime | None) -> list[datetime]:
    """Return the times that are `days` after `date`, without those of the future."""
    begin, end = datetime.fromisoformat(date).astimezone(UTC), now or datetime.now(UTC)
    return [time for day in days if (time := begin + timedelta(days=day)) <= end] or [min(begin, end)]
