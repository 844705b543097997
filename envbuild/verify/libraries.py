"""Shared libraries: that all are found, that there is one of each kind that must not be mixed, and that none stands in
for the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from envbuild.verify.results import AuditResult, judged, listed

Seen = Mapping[str, Any]


def library_results(seen: Seen, driver: Sequence[str]) -> Iterator[AuditResult]:
    """Every needed library is found by the loader or loaded before by Python code; only the driver's own may be
    missing.

    A file of a wheel that nothing else needs and Python cannot import is a plugin of an optional feature: named, not a
    failure.
    """
    elves: Mapping[str, Mapping[str, Any]] = seen["elves"]
    sites = tuple(sorted({f"{dist['site']}/" for dist in seen["python"]}))
    lost = {
        path: missing
        for path, elf in elves.items()
        if (missing := [name for name in elf.get("missing", ()) if not any(fnmatchcase(name, item) for item in driver)])
    }
    used = reachable(seen) if lost else set()
    optional = {path for path in lost if sites and path.startswith(sites) and path not in used}
    preloads = sum(len(elf.get("preload", ())) for elf in elves.values())
    met = sum(len(elf.get("needed", ())) for elf in elves.values())
    compared = f"{met} needs of {len(elves)} files are met by the loader"
    if preloads:
        compared += f", {preloads} by libraries that Python code loads before"
    if optional:
        plugins = [f"{path} (no {', '.join(lost[path])})" for path in sorted(optional)]
        compared += f"; optional plugins that cannot be used: {listed(plugins)}"
    faults = [f"{path} needs {', '.join(lost[path])}" for path in lost if path not in optional]
    programs = {path: elf["no_interpreter"] for path, elf in elves.items() if "no_interpreter" in elf}
    faults += [f"{path} needs the interpreter {interpreter}" for path, interpreter in programs.items()]
    yield judged(
        "libraries are found",
        faults,
        compared,
        "add the package that holds it, or its folder to the recipe's runtime(libraries=…)",
    )
    yield judged(
        "the loader's cache fits",
        [*([seen["cache_error"]] if seen["cache_error"] else []), *(f"{path} is gone" for path in seen["cache_gone"])],
        "/etc/ld.so.cache",
        "run ldconfig in the last unit",
    )
    yield judged(
        "files can be read",
        [f"{path}: {reason}" for path, reason in seen["damaged"].items()],
        f"{len(elves)} ELF files",
        "a file was cut short: build the image again with --rebuild",
    )


def reachable(seen: Seen) -> set[str]:
    """Files that a program, a Python extension module, or a library outside of wheels needs, however far down."""
    elves: Mapping[str, Mapping[str, Any]] = seen["elves"]
    modules = {(dist["site"], module) for dist in seen["python"] for module in dist["modules"]}
    sites = sorted({dist["site"] for dist in seen["python"]})

    def root(path: str) -> bool:
        site = next((site for site in sites if path.startswith(f"{site}/")), None)
        if site is None:
            return True
        name = path.removeprefix(f"{site}/").replace("/", ".")
        stem = name.split(".cpython-")[0].removesuffix(".so").removesuffix(".abi3")
        return (site, stem) in modules

    found = {path for path in elves if root(path)}
    waiting = sorted(found)
    while waiting:
        elf = elves[waiting.pop()]
        for target in [*elf.get("needed", {}).values(), *elf.get("preload", {}).values()]:
            if target in elves and target not in found:
                found.add(target)
                waiting.append(target)
    return found


def single_results(seen: Seen, allowed: Mapping[str, int]) -> Iterator[AuditResult]:
    """No more than the allowed number of files of each library. Says which one the loader's path gives and which ones
    are really used."""
    for library, most in sorted(allowed.items()):
        there = seen["singles"].get(library)
        if there is None:
            continue  # not counted in the image, so nothing is claimed
        files = there["files"]
        first = ", ".join(sorted({path for path in there["first"].values() if path})) or "none"
        used = ", ".join(f"{path} by {count}" for path, count in sorted(there["used"].items())) or "none"
        yield judged(
            f"at most {most} {library}",
            [] if len(files) <= most else [f"{len(files)} are there: {', '.join(files)}"],
            f"files: {len(files)}; on the loader's path: {first}; used: {used}",
            "two versions in one process hang or crash: leave out the package that brings the second one",
        )


def driver_result(seen: Seen) -> AuditResult:
    """The driver comes from the host; a stub that the loader finds would hide it."""
    faults = [f"{name} is {path}" for name, path in seen["driver"].items() if path]
    for path, elf in seen["elves"].items():
        for name, target in elf.get("needed", {}).items():
            if name in seen["driver"] and target:
                faults.append(f"{path} takes {name} from {target}")
    return judged(
        "the driver is the host's",
        faults,
        f"{', '.join(sorted(seen['driver']))} are not on the loader's path",
        "take the stub folder out of ld.so.conf.d, LD_LIBRARY_PATH and RPATH",
    )
