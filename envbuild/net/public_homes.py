"""Public homes: where the inputs of images are on the internet, one file for each vendor in ``homes/``.

A file states its `vendor`, what it `contains`, its `licence`, and `homes`: the address of each prefix of origins, with
the way it was found. A site's mirrors take precedence, and ``upstream: false`` turns all of them off
(`envbuild.net.supply`). The files are read for the first origin without a mirror.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envbuild.net.bootstrap_tools import archive_values
from envbuild.net.origin_kinds import longest_prefix

FOLDER = Path(__file__).with_name("homes")
FOUND = {
    "vendor": "the vendor's own documentation",
    "builds": "builds of the vendor or of a cloud provider",
    "projects": "other public projects",
}


@dataclass(frozen=True, slots=True)
class HomeKey:
    """A key that signs a repository: its fingerprint, the `files` that contain it (below the repository, or addresses),
    the `folders` (first part below the prefix) that it signs, all if empty, and the month `since` when it does."""

    fingerprint: str
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    since: str = ""


@dataclass(frozen=True, slots=True)
class Home:
    """The public place of all origins that begin with `origin`.

    `address`: the rest of the origin is appended to it. `found`: a key of `FOUND`; `source`: the document. `arch`: the
    architectures (Debian's words) that it serves, all if empty. `folders`, `suites`: the only ones that are known to
    exist. `other_hosts`: hosts that it links or redirects to. `snapshot`: the address of the archive as it was at
    ``{time}``, from the day `snapshot_since` on.
    """

    vendor: str
    contains: str
    licence: str
    file: str
    origin: str
    address: str
    found: str
    source: str
    arch: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    keys: tuple[HomeKey, ...] = ()
    other_hosts: tuple[str, ...] = ()
    snapshot: str = ""
    snapshot_since: str = ""

    def rest(self, origin: str) -> str:
        """Return the part of `origin` after the prefix of this home."""
        return origin[len(self.origin) :].lstrip("/")

    def signing_keys(self, origin: str) -> tuple[HomeKey, ...]:
        """Return the known keys of a repository."""
        folder = self.rest(origin).partition("/")[0]
        return tuple(key for key in self.keys if not key.folders or folder in key.folders)


def find_homes(origin: str, arch: str = "") -> tuple[Home, ...]:
    """Return the homes of the longest prefix that `origin` begins with, without those whose address only a program
    states that is not installed here. `arch`: only those that serve it."""
    homes = public_homes()
    found = (_with_address(home) for home in homes.get(longest_prefix(homes, origin), ()))
    return tuple(home for home in found if home.address and (not (arch and home.arch) or arch in home.arch))


@functools.cache
def public_homes() -> dict[str, tuple[Home, ...]]:
    """Return prefix of origins → its homes, of all files, as they are written."""
    found: dict[str, tuple[Home, ...]] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for home in read_homes(path):
            found[home.origin] = (*found.get(home.origin, ()), home)
    return found


def read_homes(path: Path) -> tuple[Home, ...]:
    """Return the homes of one file, as it is written. Raises TypeError, KeyError for an unknown or missing key."""
    from envbuild.core.plain_yaml import load_plain

    value = dict(load_plain(path.read_text(encoding="utf-8")))
    if value.pop("schema") != 1:
        raise KeyError("schema")
    entries, common = value.pop("homes"), {**value, "file": path.name}
    return tuple(Home(**common, **_tuples(entry)) for entry in entries)


def _with_address(home: Home) -> Home:
    """Return a home with ``{archive}`` and ``{domain}`` replaced in its addresses; empty ones if they are not known."""
    if "{archive}" not in home.address and "{domain}" not in home.address:
        return home
    values = archive_values()
    address, snapshot = fill(home.address, values), fill(home.snapshot, {**values, "time": "{time}"})
    return replace(home, address=address, snapshot=snapshot)


def fill(template: str, values: dict[str, str]) -> str:
    """Return an address with ``{archive}`` and ``{domain}`` replaced; empty if a value is not known."""
    try:
        return template.format(**values)
    except KeyError:
        return ""


def _tuples(entry: dict[str, Any]) -> dict[str, Any]:
    found = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    if "keys" in found:
        found["keys"] = tuple(HomeKey(**_tuples(key)) for key in found["keys"])
    return found
