"""Python packages resolved for a site: the work of a lock, and what it picked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from envbuild.core.store.store import Store
from envbuild.lock.python.choose_files import FileChooser, uv_platform, wheel_tags
from envbuild.lock.python.resolve import PythonLock, PythonResolution
from envbuild.lock.python.uv import Uv
from envbuild.lock.python.uv_resolver import Resolver
from envbuild.lock.python.vendor_index import vendor_indexes
from envbuild.net.download import Transfer
from envbuild.net.python_index import PackageIndex
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.spec.recipe import PythonIndex


def work_at(
    site: Site,
    folder: Path,
    python: str,
    glibc: tuple[int, int],
    indexes: Sequence[PythonIndex] = (),
    previous: Mapping[str, Mapping[str, str]] | None = None,
) -> PythonResolution:
    """Return the work for a Python and C library (amd64), in ``folder/work``; `previous`: versions of an older lock."""
    transport = Transport(site.network())
    (folder / "work").mkdir(parents=True, exist_ok=True)
    vendors = vendor_indexes(indexes, site, transport)
    return PythonResolution(
        Resolver(Uv(site, python, uv_platform("amd64", glibc), folder / "work", folder / "cache", vendors)),
        FileChooser(
            python,
            wheel_tags(python, "amd64", glibc),
            PackageIndex(transport, site.python()),
            Transfer(transport, Store.open(site.store), pause=0.001),
            vendors,
        ),
        dict(previous or {}),
    )


def work(tmp_path: Path, *places: str, previous: dict[str, dict[str, str]] | None = None) -> PythonResolution:
    """Return the work for Python 3.13 of a site whose Python files come from `places`."""
    site = Site(tmp_path / "store", mirrors={"python:": places}, use_host=False)
    return work_at(site, tmp_path, "3.13", (2, 41), previous=previous)


def versions(lock: PythonLock, unit: str) -> list[str]:
    """Name and version of each file that a unit gets."""
    return [f"{lock.files[file].name} {lock.files[file].version}" for file in lock.units[unit].python]
