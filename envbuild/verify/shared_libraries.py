"""Shared libraries: the loader finds every needed one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from posixpath import basename
from typing import Any

from envbuild.verify.declared_contents import Expectations
from envbuild.verify.folder_set import FolderSet
from envbuild.verify.results import AuditResult, is_in_product, join_items, judge, product_folder, split_faults

Report = Mapping[str, Any]
Elves = Mapping[str, Mapping[str, Any]]


def library_results(report: Report, expected: Expectations) -> Iterator[AuditResult]:
    """Yield whether every needed library is found by the loader or loaded before by Python code; only the driver's own
    may be missing.

    A file of a wheel that nothing else needs and Python cannot import is a plugin of an optional feature: named, not a
    failure. Named as well are files of a product in /opt that has the library elsewhere in its folder (its own scripts
    set the loader's path) and, `complete` False, files of a base image.
    """
    elves: Elves = report["elves"]
    missing = missing_libraries(elves, expected.driver_libraries)
    optional, bundled = find_excused(report, missing)
    excused = optional | bundled
    faults = {path: f"{path} needs {', '.join(missing[path])}" for path in missing if path not in excused}
    programs = {path: elf["no_interpreter"] for path, elf in elves.items() if "no_interpreter" in elf}
    faults |= {path: f"{path} needs the interpreter {interpreter}" for path, interpreter in programs.items()}
    counted, note = split_faults(report, faults, expected.complete)
    yield judge(
        "libraries are found",
        counted,
        f"{compared_libraries(elves, missing, optional, bundled)}{note}",
        "add the package that holds it, or its folder to the recipe's runtime(libraries=…)",
    )
    yield judge(
        "the loader's cache fits",
        [
            *([report["cache_error"]] if report["cache_error"] else []),
            *(f"{path} is gone" for path in report["cache_gone"]),
        ],
        "/etc/ld.so.cache",
        "run ldconfig in the last unit",
    )
    yield judge(
        "files can be read",
        [f"{path}: {reason}" for path, reason in report["damaged"].items()],
        f"{len(elves)} ELF files",
        "a file is truncated: build the image again with --rebuild",
    )


def missing_libraries(elves: Elves, driver: Sequence[str]) -> dict[str, list[str]]:
    """Return file → libraries that it needs and the loader does not find, but for the `driver`'s own (patterns)."""
    found = {
        path: [name for name in elf.get("missing", ()) if not any(fnmatchcase(name, item) for item in driver)]
        for path, elf in elves.items()
    }
    return {path: names for path, names in found.items() if names}


def find_excused(report: Report, missing: Mapping[str, Sequence[str]]) -> tuple[set[str], set[str]]:
    """Return (plugins of optional features, files whose product has the libraries itself) of those that lack some."""
    sites = FolderSet({dist["site"] for dist in report["python"]})
    used = reachable_files(report) if missing else set()
    optional = {path for path in missing if sites.find(path) and path not in used}
    names = _names_in_products(report["elves"]) if missing else {}
    bundled = {path for path in missing if is_in_product(path) and set(missing[path]) <= names[product_folder(path)]}
    return optional, bundled


def compared_libraries(
    elves: Elves, missing: Mapping[str, Sequence[str]], optional: set[str], bundled: set[str]
) -> str:
    """Return what was compared, and what is missing without being a fault."""
    preloads = sum(len(elf.get("preload", ())) for elf in elves.values())
    resolved = sum(len(elf.get("needed", ())) for elf in elves.values())
    text = f"{resolved} needs of {len(elves)} files are resolved by the loader"
    if preloads:
        text += f", {preloads} by libraries that Python code loads before"
    if optional:
        plugins = [f"{path} (no {', '.join(missing[path])})" for path in sorted(optional)]
        text += f"; optional plugins that cannot be used: {join_items(plugins)}"
    if bundled:
        text += f"; found by their product's own scripts alone: {join_items(sorted(bundled))}"
    return text


def _names_in_products(elves: Elves) -> dict[str, set[str]]:
    """Return folder of a product → the names by which the libraries below it can be needed."""
    names: dict[str, set[str]] = {}
    for path, elf in elves.items():
        if is_in_product(path):
            names.setdefault(product_folder(path), set()).update((basename(path), elf.get("soname") or basename(path)))
    return names


def reachable_files(report: Report) -> set[str]:
    """Return the files that a program, a Python extension module, or a library outside of wheels needs, directly or
    not."""
    elves: Elves = report["elves"]
    modules = {(dist["site"], module) for dist in report["python"] for module in dist["modules"]}
    sites = FolderSet({dist["site"] for dist in report["python"]})

    def root(path: str) -> bool:
        site = sites.find(path)
        if not site:
            return True
        name = path.removeprefix(site).replace("/", ".")
        stem = name.split(".cpython-")[0].removesuffix(".so").removesuffix(".abi3")
        return (site.removesuffix("/"), stem) in modules

    found = {path for path in elves if root(path)}
    waiting = sorted(found)
    while waiting:
        elf = elves[waiting.pop()]
        for target in [*elf.get("needed", {}).values(), *elf.get("preload", {}).values()]:
            if target in elves and target not in found:
                found.add(target)
                waiting.append(target)
    return found
