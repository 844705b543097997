"""The step resolve → lock: from what an image asks for to every input by its digest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from packaging.utils import canonicalize_name

from envbuild import __version__
from envbuild.console import Talk
from envbuild.errors import LockError, SpecError
from envbuild.lock import debian, python, uv
from envbuild.lock.index import Index
from envbuild.lock.lockfile import DebianFile, Lock, PythonFile, SourceFile, UnitLock
from envbuild.lock.request import LockRequest
from envbuild.lock.sources import lock_source
from envbuild.lock.transfer import Transfer
from envbuild.lock.transport import Transport
from envbuild.site import Site
from envbuild.store import Store

EVERYTHING = "*"  # in `upgrade`
TOOLS = "tools"  # the pseudo-unit whose Python file is the uv that builds use


def make_lock(
    request: LockRequest,
    site: Site,
    store: Store,
    talk: Talk,
    *,
    previous: Lock | None = None,
    upgrade: frozenset[str] = frozenset(),
    refresh: bool = False,
    waivers: Iterable[Mapping[str, str]] = (),
) -> Lock:
    """Lock everything that `request` asks for.

    `previous` keeps its versions wherever they still fit and can still be had, but for the packages in `upgrade`
    (names, ``*`` for all). A `previous` that answers this very request is given back as it is, unless `refresh` asks to
    look again for what can no longer be had. Raises SpecError, ConflictError, InputError, EngineError (the store).
    """
    given = tuple(dict(waiver) for waiver in waivers)
    if previous and previous.inputs == request.digest() and not upgrade and not refresh and previous.waivers == given:
        return previous
    upgraded = frozenset(str(canonicalize_name(name)) for name in upgrade)
    kept = None if EVERYTHING in upgrade else previous
    transport = Transport(site)
    transfer = Transfer(transport, store)
    number = debian.release(request.base)
    packages = debian.resolve(
        request.base,
        request.arch,
        {name: unit.debian for name, unit in request.units.items()},
        site,
        store,
        talk,
        prefer={
            file.name: file.version
            for file in (kept.debian.values() if kept else ())
            if file.name not in upgrade | upgraded
        },
        refresh=refresh or bool(upgrade),
    )
    with store.workdir() as workdir:
        talk.start("python", "resolving Python packages")
        try:
            work = python.PythonWork(
                uv.Resolver(
                    site,
                    full_python(request.python, packages.units.values()),
                    python.platform(request.arch, debian.GLIBC[number]),
                    workdir,
                    store.root / "uv",
                ),
                Index(transport, site.python()),
                transfer,
                python.wheel_tags(request.python, request.arch, debian.GLIBC[number]),
                earlier_versions(kept, upgraded),
            )
            python_lock = work.lock(request.units)
            uv_version = kept.tools["uv"] if kept and "uv" in kept.tools and "uv" not in upgraded else uv.uv_version()
            tool = work.wheel(uv.Pin("uv", uv_version, frozenset()))
        finally:
            talk.finish("python")
    known = {} if kept is None else {name: file for name, file in kept.sources.items() if name not in upgrade}
    archives = {archive.file: archive for unit in request.units.values() for archive in unit.archives}
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda archive: lock_source(site, transfer, archive, known), archives.values())
        sources: dict[str, SourceFile] = dict(zip(archives, found, strict=True))
    units = {
        name: UnitLock(
            debian=tuple(file.file for file in packages.units[name]),
            requested=tuple(sorted(set(unit.debian))),
            essential=packages.essential if name == "base" else (),
            python=python_lock.units[name].python,
            sdists=python_lock.units[name].sdists,
            sources=tuple(sorted(archive.file for archive in unit.archives)),
        )
        for name, unit in request.units.items()
    }
    lock = Lock(
        image=request.image,
        inputs=request.digest(),
        base=request.base,
        arch=request.arch,
        python=request.python,
        epoch=packages.released,
        tools={"envbuild": __version__, "hpccm": installed("hpccm"), "uv": uv_version},
        versions={},
        debian=by_name(file for files in packages.units.values() for file in files),
        python_files={**python_lock.files, tool.file: tool},
        sources=sources,
        units={**units, TOOLS: UnitLock(python=(tool.file,))},
        waivers=given,
    )
    check_upgrades(lock, upgrade)
    return replace(lock, versions=component_versions(request.spec.get("components"), lock))


def full_python(python_version: str, units: Iterable[Iterable[DebianFile]]) -> str:
    """``3.13`` → ``3.13.5``, the version that the image's Debian packages bring, where they bring it."""
    for files in units:
        for file in files:
            if file.name == f"python{python_version}" and (match := re.match(r"\d+\.\d+\.\d+", file.version)):
                return match[0]
    return python_version


def earlier_versions(lock: Lock | None, upgraded: frozenset[str]) -> dict[str, dict[str, str]]:
    """Unit → {package: version} of a lock, without `upgraded`; sdists stand under ``UNIT sdists``."""
    found: dict[str, dict[str, str]] = {}
    for name, unit in lock.units.items() if lock else ():
        for key, files in ((name, unit.python), (f"{name} sdists", unit.sdists)):
            entries = [lock.python_files[file] for file in files] if lock else []
            found[key] = {entry.name: entry.version for entry in entries if entry.name not in upgraded}
    return found


def by_name(files: Iterable[DebianFile]) -> dict[str, DebianFile]:
    """File name → file. Raises LockError when two archives have different content under one name."""
    found: dict[str, DebianFile] = {}
    for file in files:
        if found.setdefault(file.file, file).sha256 != file.sha256:
            raise LockError(f"{file.archive} and {found[file.file].archive} have different files named {file.file}")
    return dict(sorted(found.items()))


def component_versions(components: object, lock: Lock) -> dict[str, str]:
    """Component → version of the package that stands for it (`Recipe.package`), as it was locked."""
    found = {file.name: file.version for file in lock.debian.values()}
    found |= {file.name: file.version for file in lock.python_files.values()}
    named = components.items() if isinstance(components, Mapping) else ()
    return {str(name): found[package] for name, package in named if package in found}


def installed(package: str) -> str:
    """The installed version of a Python package, or ``none``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def check_upgrades(lock: Lock, upgrade: Iterable[str]) -> None:
    """Raises SpecError for a name to upgrade that the image does not have."""
    from envbuild.fields import did_you_mean

    debian_names = {file.name for file in lock.debian.values()}
    known = debian_names | {file.name for file in lock.python_files.values()} | set(lock.sources)
    for name in upgrade:
        if name != EVERYTHING and name not in known and str(canonicalize_name(name)) not in known:
            hint = did_you_mean(name, known, "")
            raise SpecError(
                f"the image has no package '{name}' to upgrade",
                hint if hint.startswith("did you") else f"see the lock for its names: envbuild show {lock.image}",
            )


def changes(old: Lock, new: Lock) -> list[str]:
    """One line for each package or source that differs: ``numpy 2.5.1 → 2.5.5``, ``+ click 8.5.1``, ``- six 1.17``."""
    lines = []
    for label, before, after in (
        ("", _versions(old.debian.values()), _versions(new.debian.values())),
        ("", _versions(old.python_files.values()), _versions(new.python_files.values())),
        ("source ", _sources(old.sources.values()), _sources(new.sources.values())),
    ):
        for name in sorted(before.keys() | after.keys()):
            was, now = before.get(name, {}), after.get(name, {})
            if was == now:
                continue
            if not was:
                lines.append(f"+ {label}{name} {', '.join(sorted(now))}")
            elif not now:
                lines.append(f"- {label}{name} {', '.join(sorted(was))}")
            elif was.keys() == now.keys():
                lines.append(f"{label}{name} {', '.join(sorted(now))}: other content")
            else:
                lines.append(f"{label}{name} {', '.join(sorted(was))} → {', '.join(sorted(now))}")
    return lines


def _versions(files: Iterable[DebianFile | PythonFile]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for file in files:
        found.setdefault(file.name, {}).setdefault(file.version, []).append(file.sha256)
    return {name: {key: sorted(digests) for key, digests in versions.items()} for name, versions in found.items()}


def _sources(files: Iterable[SourceFile]) -> dict[str, dict[str, list[str]]]:
    return {file.file: {file.origin: [file.sha256]} for file in files}
