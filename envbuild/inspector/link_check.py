"""Check of files that were linked elsewhere: symbols that no library has, versions that a library lacks.

The loader reports neither before the file is loaded, for a function not before its first call. The check is that of the
loader: is the name in a file that is loaded with this one. ELF does not record which library should define a name.
"""

# Strings instead of Path objects: many thousand files, and names that are not UTF-8.
# ruff: noqa: PTH123

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .dynamic_loader import Loader
from .elf import describe_damage, map_file
from .elf_symbols import Symbols, gnu_hash

MAX_NAMES, LONGEST = 8, 4096  # names of one file that are reported, bytes of each
GLOBAL = "torch/lib/libtorch_global_deps.so"  # what ``import torch`` loads for all modules (torch/__init__.py)
TORCH = re.compile(r"lib(torch|c10)[^/]*\.so[^/]*")
# Functions of libraries that only the host has: whether theirs are enough is not known here.
DRIVER = {
    "libcuda.so": rb"cu[A-Z]\w*",
    "libnvidia-ml.so": rb"nvml[A-Z]\w*",
    "libnvcuvid.so": rb"cuvid[A-Z]\w*",
    "libnvidia-encode.so": rb"NvEnc[A-Z]\w*",
}


class Linker:
    """Linker of one tree. `needs` as `Loader.resolve` returns it; `sites`: folders of Python packages, `python` their
    interpreter or ""; `owners`: file → distribution; `prefixes`: folders that hold one product each. `damaged` is
    filled with the files whose tables cannot be read."""

    def __init__(
        self,
        loader: Loader,
        needs: Mapping[str, Mapping[str, tuple[str, str]]],
        sites: Sequence[str],
        owners: Mapping[str, str],
        prefixes: Sequence[str],
        python: str,
    ) -> None:
        self.loader, self.needs, self.owners, self.prefixes = loader, needs, owners, prefixes
        self.sites = tuple(f"{site}/" for site in sites)
        self.python = python
        self.damaged: dict[str, str] = {}
        self.opened: dict[str, Symbols | None] = {}
        self.loaded: dict[str, tuple[dict[str, None], frozenset[str]]] = {}
        self.hashes: dict[bytes, int] = {}
        self.places: dict[bytes, str] = {}  # where a name was found last: most are needed many times

    def check(self, paths: Iterable[str]) -> dict[str, Any]:
        """Return counts of files:

        ``files`` and ``symbols`` (how many were compared), ``not_found`` (file → names, how many, with which
        libraries), ``elsewhere`` (file → how many names others of its product have, which loads it), ``driver`` (how
        many only the host can have), ``skipped`` (files that lack a whole library)."""
        not_found: dict[str, dict[str, Any]] = {}
        elsewhere: dict[str, int] = {}
        compared = files = driver = 0
        skipped = []
        for path in paths:
            near, absent = self.closure(path)
            if any(not name.startswith(tuple(DRIVER)) for name in absent):
                skipped.append(path)
                continue
            rules = [re.compile(rule) for name, rule in DRIVER.items() if any(item.startswith(name) for item in absent)]
            files += 1
            names = []
            for name, version in self.wanted(path):
                compared += 1
                if self.found(name, version, self.scopes(path)):
                    continue
                if any(rule.fullmatch(name) for rule in rules):
                    driver += 1
                elif self.found(name, version, [self.companions(path)]):
                    elsewhere[path] = elsewhere.get(path, 0) + 1
                else:
                    text = name[:LONGEST].decode("utf-8", "surrogateescape")
                    names.append(f"{text}@{version}" if version else text)
            if names:
                torch = sorted(name for name in map(posixpath.basename, near) if TORCH.fullmatch(name))
                not_found[path] = {"names": sorted(names)[:MAX_NAMES], "count": len(names), "torch": torch}
        return {
            "files": files,
            "symbols": compared,
            "not_found": not_found,
            "elsewhere": elsewhere,
            "driver": driver,
            "skipped": skipped,
        }

    def versions(self, paths: Iterable[str]) -> dict[str, Any]:
        """Return of files: ``compared`` (how many versions), ``not_found`` (file → texts)."""
        not_found: dict[str, list[str]] = {}
        compared = 0
        for path in paths:
            own = self.symbols(path)
            for file, versions in own.needs.items() if own else ():
                target = self.provider(path, file)
                other = self.symbols(target) if target else None
                there = other.versions if other else set()
                for version, must in versions.items() if there else ():
                    compared += 1
                    if must and version not in there:
                        not_found.setdefault(path, []).append(f"{version} of {target}")
        return {"compared": compared, "not_found": not_found}

    def product_on_torch(self, path: str) -> bool:
        """Return whether it is in one of the prefixes and is linked with torch's libraries."""
        inside = path.startswith(tuple(f"{prefix}/" for prefix in self.prefixes))
        return inside and any(TORCH.fullmatch(name) for name in self.needs.get(path, ()))

    def provider(self, path: str, file: str) -> str:
        """Return the library that a file of that name is for `path`, or ""."""
        direct = self.needs.get(path, {}).get(file, ("", ""))[1]
        return direct or next((item for item in self.closure(path)[0] if self.loader.elves[item].soname == file), "")

    def symbols(self, path: str) -> Symbols | None:
        """Return the symbols of a file of the tree; None if they cannot be read."""
        if path not in self.opened:
            try:
                with open(path, "rb") as file:
                    data = map_file(file.fileno())
                self.opened[path] = Symbols(data, self.loader.elves[path])
            except (OSError, ValueError) as error:
                self.damaged[path] = describe_damage(error)
                self.opened[path] = None
        return self.opened[path]

    def wanted(self, path: str) -> list[tuple[bytes, str]]:
        """Return the symbols that a file needs of other files; none if they cannot be read."""
        try:
            own = self.symbols(path)
            return own.wanted() if own else []
        except ValueError as error:
            self.damaged[path] = str(error)
            return []

    def closure(self, path: str) -> tuple[dict[str, None], frozenset[str]]:
        """Return (the libraries that are loaded with a file, nearest first; names of those that are missing)."""
        if path not in self.loaded:
            found, absent, waiting = {path: None}, set(), [path]
            for each in waiting:
                for name, (_, target) in self.needs.get(each, {}).items():
                    if not target:
                        absent.add(name)
                    elif target not in found:
                        found[target] = None
                        waiting.append(target)
            del found[path]
            self.loaded[path] = found, frozenset(absent)
        return self.loaded[path]

    def scopes(self, path: str) -> Iterator[Mapping[str, None]]:
        """Yield groups of files where the loader looks for the symbols of `path`."""
        near = self.closure(path)[0]
        yield near
        site = next((site for site in self.sites if path.startswith(site)), "")
        if site and self.python:
            yield {self.python: None, **self.closure(self.python)[0]}
        if site and any(TORCH.fullmatch(posixpath.basename(item)) for item in near):
            for place in self.sites:
                if place + GLOBAL in self.loader.elves:
                    yield self.closure(place + GLOBAL)[0]

    def companions(self, path: str) -> Mapping[str, None]:
        """Return other files of the same product: what loads a plugin has symbols for it."""
        home = next((prefix for prefix in self.prefixes if path.startswith(f"{prefix}/")), "")
        site = next((site for site in self.sites if path.startswith(site)), "")
        package = path[len(site) :].partition("/")[0] if site and "/" in path[len(site) :] else ""
        owner = self.owners.get(path, "")
        return {
            item: None
            for item in self.needs
            if item != path
            and (
                (home and item.startswith(f"{home}/"))
                or (owner and self.owners.get(item) == owner)
                or (package and item.startswith(f"{site}{package}/"))  # of several distributions
            )
        }

    def found(self, name: bytes, version: str, scopes: Iterable[Mapping[str, None]]) -> bool:
        hashed = self.hashes.get(name)
        if hashed is None:
            hashed = self.hashes[name] = gnu_hash(name)
        place = self.places.get(name, "")
        for scope in scopes:
            for item in (place, *scope) if place in scope else scope:
                if self.has(item, name, version, hashed):
                    self.places[name] = item
                    return True
        return False

    def has(self, path: str, name: bytes, version: str, hashed: int) -> bool:
        try:
            own = self.symbols(path)
            return own is not None and own.has(name, version, hashed)
        except ValueError as error:
            self.damaged[path] = str(error)
            return False
