"""The step resolve → lock: from what an image asks for to every input by its digest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from envbuild import __version__
from envbuild.console import Talk
from envbuild.errors import ConflictError, Finding, LockError, SpecError
from envbuild.lock import debian, python, uv
from envbuild.lock.index import Index
from envbuild.lock.lockfile import DebianFile, Lock, PythonFile, SourceFile, UnitLock
from envbuild.lock.request import LockRequest, UnitRequest
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
    components = request.spec.get("components")
    if previous and previous.inputs == request.digest():
        check_upgrades(previous, upgrade, components)  # at once, where the packages are known already
        if not upgrade and not refresh and previous.waivers == given:
            check_versions(request, previous)
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
    check_upgrades(lock, upgrade, components)
    check_versions(request, lock)
    return replace(lock, versions=component_versions(components, lock))


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


def check_versions(request: LockRequest, lock: Lock) -> None:
    """Raises ConflictError for every component that was locked in another version than its layer asks for.

    A recipe may take its package from where there is one version only (Debian), and so cannot follow its option.
    """
    components, layers = request.spec.get("components"), request.spec.get("layers")
    if not isinstance(components, Mapping) or not isinstance(layers, Mapping):
        return
    found = component_versions(components, lock)
    origins = {file.name: file.archive for file in lock.debian.values()}
    origins |= {file.name: "the package index" for file in lock.python_files.values()}
    findings = []
    for name, package in components.items():
        asked, has = str(layers.get(name, {}).get("version") or ""), found.get(name, "")
        if not asked or answers(asked, has, python=origins.get(package) == "the package index"):
            continue
        if has:
            because = f"{origins[package]} has {has} and the recipe takes it from there"
            short = re.match(r"(?:\d+:)?(\d+(?:\.\d+)?)", has)
            hint = f'leave the version of {name} out, or write version: "{short[1] if short else has}"'
        elif request.units.get(f"build-{name}", UnitRequest()).archives:
            continue  # compiled from the recipe's own archive, whose version no package tells
        else:
            because = f"the recipe installs no package '{package}', whose version that would be"
            hint = f"leave the version of {name} out, or correct 'package' in the recipe"
        findings.append(Finding(f"{name} {asked} cannot be had, because {because}", hint=hint))
    if findings:
        raise ConflictError.of(findings)


def answers(asked: str, locked: str, *, python: bool = False) -> bool:
    """Whether `locked` is the version `asked` or one of its line: ``1.18`` is answered by ``1.18.1+ds-2``, by
    ``1:1.18-1`` and not by ``1.180``; a `python` version also by its other spellings (``4.1.0`` by ``4.1``, PEP 440).
    """
    if re.match(rf"(\d+:)?{re.escape(asked)}(?!\d)", locked):
        return True
    try:
        return python and SpecifierSet(f"=={asked}").contains(locked, prereleases=True)
    except InvalidSpecifier:
        return False


def installed(package: str) -> str:
    """The installed version of a Python package, or ``none``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def check_upgrades(lock: Lock, upgrade: Iterable[str], components: object = None) -> None:
    """Raises SpecError with every name to upgrade that the image does not have. `components`: component → its package,
    so that the name of a layer is answered with that."""
    debian_names = {file.name for file in lock.debian.values()}
    known = debian_names | {file.name for file in lock.python_files.values()} | set(lock.sources)
    packages = (
        {str(name): str(package) for name, package in dict(components).items()}
        if isinstance(components, Mapping)
        else {}
    )
    findings = [
        Finding(f"the image has no package '{name}' to upgrade", hint=upgrade_hint(name, known, packages))
        for name in sorted(upgrade)
        if name != EVERYTHING and name not in known and str(canonicalize_name(name)) not in known
    ]
    if findings:
        raise SpecError.of(findings)


def upgrade_hint(name: str, known: Iterable[str], packages: Mapping[str, str]) -> str:
    """Names of `known` that `name` may have meant: the package of that component, the closest ones, or the components'
    packages."""
    import difflib

    names = sorted(known)
    if packages.get(name) in names:
        return f"the package of {name} is {packages[name]}: --upgrade {packages[name]}"
    close = difflib.get_close_matches(name.lower()[:100], names, n=3)
    close += [other for other in names if len(name) > 2 and name.lower() in other and other not in close]
    if close:
        first, *more = (f"'{other}'" for other in close[:5])
        return f"did you mean {', '.join([first, *more[:-1]])}{f' or {more[-1]}' if more else ''}?"
    examples = sorted(set(packages.values()) & set(names)) or names
    return f"its packages are {', '.join(examples[:8])}{' and others' if len(names) > len(examples[:8]) else ''}"


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
