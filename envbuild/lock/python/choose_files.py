"""One file for each Python package: the wheel that installers prefer on the target, or the sdist that is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from envbuild.core.distributions import MACHINES
from envbuild.core.errors import ConflictError, InputError, SpecError
from envbuild.lock.missing_inputs import InvalidInputError
from envbuild.lock.model import PythonFile
from envbuild.lock.python.pins import Pin
from envbuild.lock.python.vendor_index import VendorIndex
from envbuild.net.download import DownloadError, Transfer
from envbuild.net.python_index import IndexFile, PackageIndex, is_file_of, split_name
from envbuild.net.site import mirror_line, mirrors_setting

LISTED = 5  # versions that a message lists
NEWEST_MANYLINUX = 40  # the highest manylinux_2_N that uv knows as --python-platform


@dataclass(frozen=True, slots=True)
class FileChooser:
    """A chooser of files for Python `python` on a machine that supports wheels of these `tags` (best first). The
    packages that `vendors` name come from their indexes only."""

    python: str  # 3.13 or 3.13.5
    tags: tuple[Tag, ...]
    index: PackageIndex
    transfer: Transfer
    vendors: tuple[VendorIndex, ...] = ()

    def index_of(self, name: str) -> tuple[str, PackageIndex]:
        """Return (origin, index) of the package `name`: its vendor's, else the package index (origin empty)."""
        vendor = next((vendor for vendor in self.vendors if name in vendor.packages), None)
        return (vendor.origin, vendor.index) if vendor else ("", self.index)

    def origin_of(self, name: str) -> str:
        """Return the origin of the package `name`: its vendor's index; empty for the package index."""
        return self.index_of(name)[0]

    def wheel(self, pin: Pin) -> PythonFile:
        """Return the wheel that installers prefer on the target.

        Raises SpecError when there is only an sdist, InputError when there is neither.
        """
        ranks = {tag: rank for rank, tag in enumerate(self.tags)}
        fitting: list[tuple[int, tuple[int, str], int, IndexFile]] = []
        origin, index = self.index_of(pin.name)
        files = [file for file in index.files(pin.name) if is_file_of(file.name, pin.name)]
        for place, file in enumerate(files):
            try:
                if Version(split_name(file.name)[1]) != Version(pin.version):
                    continue  # before all combinations of its tags are made
                _, version, build, tags = parse_wheel_filename(file.name)
            except ValueError:  # also a number that Python does not read
                continue
            best = min((ranks[tag] for tag in tags if tag in ranks), default=-1)
            if (
                version == Version(pin.version)
                and best >= 0
                and (not file.sha256 or not pin.hashes or file.sha256 in pin.hashes)
            ):
                fitting.append((-best, (build[0], build[1]) if build else (0, ""), -place, file))
        if not fitting:
            if any(not file.name.endswith(".whl") and file.sha256 in pin.hashes for file in files):
                raise SpecError(
                    f"{pin.name} {pin.version} has no wheel for this image, only its source",
                    hint="compile it with a recipe (wheel=True), or name a version that has a wheel",
                )
            if origin:
                line = mirror_line(origin)
                raise InputError(
                    f"{pin.name} {pin.version} is not available: it comes from {origin} only, and that index does not "
                    "list a wheel of it for this image",
                    hint="packages of this name on other indexes are different ones; for a copy that has it, write "
                    f"into site.yaml:  {mirrors_setting(line)}",
                    mirror_lines=(line,),
                )
            line = mirror_line("python:", "ADDRESS, …")
            raise InputError(
                f"{pin.name} {pin.version} was resolved, but no index lists a wheel of it for this image",
                hint=f"configure other indexes in site.yaml:  {mirrors_setting(line)}",
                mirror_lines=(line,),
            )
        return self.record(max(fitting)[-1], pin.version, origin)

    def sdist(self, text: str, earlier: str | None) -> PythonFile:
        """Return the sdist that ``name`` or ``name==version`` names: the version `earlier` if it fits, else the newest.

        Raises ConflictError when there are sdists but none that fits, InvalidInputError when there is none at all.
        """
        wanted = Requirement(text)
        known = None
        if earlier is not None:
            with suppress(ValueError):  # of a lock that another user wrote
                known = Version(earlier)
        fitting: list[tuple[bool, bool, Version, bool, int, IndexFile]] = []
        others: dict[Version, bool] = {}  # version → whether it runs on this Python
        name = str(canonicalize_name(wanted.name))
        origin, index = self.index_of(name)
        for place, file in enumerate(index.files(name)):
            if file.name.endswith(".whl") or file.yanked or not is_file_of(file.name, name):
                continue
            try:
                version = parse_sdist_filename(file.name)[1]
                runs = SpecifierSet(file.requires_python).contains(self.python, prereleases=True)
            except ValueError:
                continue
            if runs and wanted.specifier.contains(version, prereleases=True):
                locked = version == known
                # A pre-release is chosen when it is requested, or when there is nothing else (PEP 440).
                final = not version.is_prerelease or bool(wanted.specifier.prereleases)
                fitting.append((locked, final, version, file.name.endswith(".tar.gz"), -place, file))
            others[version] = runs or others.get(version, False)
        if not fitting and others:
            raise no_such_sdist_error(wanted, others, self.python)
        if not fitting:
            line = mirror_line(origin or "python:", "ADDRESS, …")
            raise InvalidInputError(
                f"{origin or 'no package index'} has {'no' if origin else 'an'} sdist for '{text}'",
                hint=f"check the name; configure other indexes in site.yaml:  {mirrors_setting(line)}",
                mirror_lines=(line,),
            )
        best = max(fitting)
        return self.record(best[-1], str(best[2]), origin)

    def record(self, file: IndexFile, version: str, origin: str = "") -> PythonFile:
        """Return the lock's entry for a file of the index; a file without a digest there is fetched to compute it."""
        sha256, size = file.sha256, file.size
        if not sha256:
            try:
                sha256, size = self.transfer.obtain([file.url], size=size or None)
            except DownloadError as error:
                raise InputError(
                    f"{file.name} is not available: {error}", hint="check the network and the index"
                ) from None
        size = size or self.transfer.transport.size(file.url)
        name = str(canonicalize_name(split_name(file.name)[0]))
        return PythonFile(file.name, name, version, size, sha256, origin)


def no_such_sdist_error(wanted: Requirement, versions: Mapping[Version, bool], python: str) -> ConflictError:
    """Return the error for a version that does not exist; `versions`: version → whether it runs on `python`."""
    running = sorted((version for version, runs in versions.items() if runs), reverse=True)
    running = [version for version in running if not version.is_prerelease] or running
    elsewhere = sorted(version for version in versions if wanted.specifier.contains(version, prereleases=True))
    cause = f"the package index has no such sdist of {wanted.name}"
    if elsewhere:
        cause = f"the sdist of {wanted.name} {elsewhere[-1]} does not run on Python {python}"
    if not running:
        hint = f"no sdist of {wanted.name} runs on Python {python}: leave the layer out"
        return ConflictError(f"'{wanted}' is not available: {cause}", hint)
    newest = ", ".join(str(version) for version in running[:LISTED])
    return ConflictError(
        f"'{wanted}' is not available: {cause}; the newest are {newest}",
        f'write an existing version, for example version: "{running[0]}", or leave it out',
    )


def uv_platform(arch: str, glibc: tuple[int, int]) -> str:
    """Return uv's name of a Linux platform."""
    return f"{MACHINES[arch]}-manylinux_2_{min(glibc[1], NEWEST_MANYLINUX)}"


def wheel_tags(python: str, arch: str, glibc: tuple[int, int]) -> tuple[Tag, ...]:
    """Return the tags of the wheels that CPython `python` installs there, best first (PEP 425, PEP 600; the same ones
    that uv derives from `uv_platform`).
    """
    machine = MACHINES[arch]
    legacy = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    platforms = []
    for minor in range(min(glibc[1], NEWEST_MANYLINUX), 4 if machine == "x86_64" else 16, -1):
        platforms.append(f"manylinux_2_{minor}_{machine}")
        if minor in legacy:
            platforms.append(f"{legacy[minor]}_{machine}")
    platforms.append(f"linux_{machine}")
    version = tuple(int(part) for part in python.split(".")[:2])
    name = f"cp{version[0]}{version[1]}"
    return (*cpython_tags(version, [name], platforms), *compatible_tags(version, name, platforms))
