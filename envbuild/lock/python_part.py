"""The Python packages as a part of a lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from packaging.utils import canonicalize_name

from envbuild.core.errors import EnvbuildError, InputError
from envbuild.lock.assembly import PythonFiles
from envbuild.lock.base_image.lock_base import LockedBase
from envbuild.lock.lock_parts import LockParts
from envbuild.lock.model import Lock, SourceFile
from envbuild.lock.python import choose_files
from envbuild.lock.python import resolve as python
from envbuild.lock.python.kept_units import KeptUnits, locked_files
from envbuild.lock.python.known_releases import KnownReleases
from envbuild.lock.python.local_projects import lock_wheels, with_metadata
from envbuild.lock.python.pins import Pin
from envbuild.lock.python.uv import Uv
from envbuild.lock.python.uv_cache import uv_cache
from envbuild.lock.python.uv_resolver import Resolver
from envbuild.lock.python.vendor_index import VendorIndex, reachable_indexes
from envbuild.lock.stored_results import StoredResults
from envbuild.net.python_index import PackageIndex
from envbuild.net.uv_program import uv_version


def lock_python(
    parts: LockParts, number: str, base: LockedBase | None, sources: Mapping[str, SourceFile] | None = None
) -> PythonFiles:
    """Lock the Python packages for Python `number`, and the uv that installs them.

    sources: the locked sources, if `has_projects`
    """
    request, previous, glibc = parts.request, parts.previous, parts.distribution.glibc
    tags = choose_files.wheel_tags(request.python, request.arch, glibc)
    units, wheels = request.units, {}
    if parts.has_projects:
        where = {**request.source_places(), **request.wheel_places()}
        wheels = lock_wheels(units, Path(request.folder), tags, parts.store, where)
        units = with_metadata(units, sources or {}, parts.store, number, parts.reporter, where=where)
    vendors, without_mirror = reachable_indexes(request.indexes, parts.site, parts.transport)
    present = base.image.python if base else {}
    kept = kept_units(parts, number, vendors, present, usable=not without_mirror)
    again = parts.refresh or bool(parts.upgrade)  # as for package lists
    cache = uv_cache(parts.store, parts.site.network(), fresh=again)
    with parts.store.workdir() as workdir:
        parts.reporter.start("python", "resolving Python packages")
        try:
            platform = choose_files.uv_platform(request.arch, glibc)
            choice = choose_files.FileChooser(
                number,
                tags,
                PackageIndex(parts.transport, parts.site.python()),
                parts.transfer,
                vendors,
            )
            work = python.PythonResolution(
                Resolver(Uv(parts.site, number, platform, workdir, cache, vendors)),
                choice,
                earlier_versions(previous, parts.upgraded),
                present=present,
                lacking={
                    str(canonicalize_name(name)): f"of {index.origin}"
                    for index in request.indexes
                    for name in index.packages
                    if index.origin in without_mirror
                },
                report=parts.reporter.info,
                find_conflicts=parts.find_conflicts,
                before=[InputError.of(findings) for findings in without_mirror.values()],
                wheels=wheels,
                known=KnownReleases(parts.newest, parts.reporter.info),
                kept=kept,
                hold=parts.only,
            )
            reuse = previous is not None and "uv" in previous.tools and "uv" not in parts.upgraded
            tool = Pin("uv", previous.tools["uv"] if previous and reuse else uv_version(), frozenset())
            try:
                return work.lock(units), kept.tool("uv", tool.version) or choice.wheel(tool)
            except EnvbuildError:
                with suppress(EnvbuildError):
                    parts.resolved.append(choice.wheel(tool))
                parts.resolved += work.found()
                raise
        finally:
            parts.reporter.finish("python")


def kept_units(
    parts: LockParts, number: str, vendors: Sequence[VendorIndex], present: Mapping[str, str], *, usable: bool
) -> KeptUnits:
    """Return the Python packages of the older lock that need not be resolved again. usable: uv can answer about all
    units."""
    request = parts.request
    if parts.refresh or parts.has_projects:
        return KeptUnits()
    usable = usable and not parts.upgrade
    python = parts.site.python()
    context = {
        "python": [number, request.arch, parts.distribution.name],
        "indexes": [list(python.indexes), list(python.links), list(python.insecure)],
        "vendors": [[vendor.origin, vendor.place, sorted(vendor.packages)] for vendor in vendors],
        "present": dict(present),
        "newest": dict(parts.newest),
        "uv": uv_version(),
    }
    files = locked_files(parts.previous, parts.distribution.name, request.arch, request.python)
    return KeptUnits(files, StoredResults(parts.store) if usable else None, context)


def earlier_versions(lock: Lock | None, upgraded: frozenset[str]) -> dict[str, dict[str, str]]:
    """Return unit → {package: version} of a lock, without `upgraded`; sdists have the key ``UNIT sdists``."""
    found: dict[str, dict[str, str]] = {}
    for name, unit in lock.units.items() if lock else ():
        for key, files in ((name, unit.python), (f"{name} sdists", unit.sdists)):
            entries = [lock.python_files[file] for file in files] if lock else []
            found[key] = {entry.name: entry.version for entry in entries if entry.name not in upgraded}
    return found
