"""Resolution of needed libraries as the loader does it, from headers instead of by loading.

Order of glibc's dynamic linker (ld.so(8)): a name with a slash is a path; DT_RPATH of the object and of what loaded it,
if there is no DT_RUNPATH; LD_LIBRARY_PATH; DT_RUNPATH of the object; ld.so.cache; the default folders. A candidate
of another class or machine is passed over.
"""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Iterable, Mapping, Sequence

from .elf import Elf, read_string

CACHE_MAGIC = b"glibc-ld.so.cache1.1"
MAX_STRINGS = 64 << 20  # bytes of all names: many entries can be one long string
HWCAP_EXTENSION = 1 << 62  # an entry below glibc-hwcaps/, taken only on a newer CPU
PRELOAD = "preload"  # not by the loader: Python code loads it before (torch's own libraries, the nvidia wheels)


def read_cache(data: bytes) -> list[tuple[str, str]]:
    """Return (SONAME, path) pairs of /etc/ld.so.cache in the loader's order, those for every CPU first.

    Layout: glibc, sysdeps/generic/dl-cache.h, "new format"; an old-format table may precede it. Raises ValueError.
    """
    start = data.find(CACHE_MAGIC)
    if start < 0:
        raise ValueError("no table of the format glibc-ld.so.cache1.1")
    data = data[start:]
    plain: list[tuple[str, str]] = []
    special: list[tuple[str, str]] = []
    left = MAX_STRINGS
    try:
        count = struct.unpack_from("<I", data, 20)[0]
        for index in range(count):
            _, key, value, _, hwcap = struct.unpack_from("<iIIIQ", data, 48 + 24 * index)
            pair = (read_string(data, key), read_string(data, value))
            (special if hwcap & HWCAP_EXTENSION else plain).append(pair)
            left -= len(pair[0]) + len(pair[1]) + 1
            if left < 0:
                raise ValueError(f"more than {MAX_STRINGS} bytes of names")
    except (struct.error, IndexError):
        raise ValueError("truncated") from None
    return plain + special


class Loader:
    """Loader of one tree. `elves`: path (no symlink in it) → headers. `links`: symlink path → target text. `cache` as
    `read_cache` returns it. `library_path`: folders of LD_LIBRARY_PATH. `preloads`: folder prefixes whose files Python
    code may load by itself."""

    def __init__(
        self,
        elves: Mapping[str, Elf],
        links: Mapping[str, str],
        cache: Sequence[tuple[str, str]] = (),
        library_path: Sequence[str] = (),
        preloads: Sequence[str] = (),
    ) -> None:
        self.elves, self.links, self.library_path = elves, links, library_path
        self.folders: dict[str, str] = {}
        self.cache: dict[str, list[str]] = {}
        for soname, path in cache:
            self.cache.setdefault(soname, []).append(path)
        self.preloads = tuple(prefix.rstrip("/") + "/" for prefix in preloads)
        self.preloaded: dict[str, list[str]] = {}
        for path, elf in sorted(elves.items()):
            if path.startswith(self.preloads):
                for name in {elf.soname, posixpath.basename(path)} - {""}:
                    self.preloaded.setdefault(name, []).append(path)

    def canonical(self, path: str) -> str:
        """Return `path` without symlinks, "." and "..", also if it does not exist; "" for a circle of links and for
        more folders within each other than Linux follows."""
        try:
            return self._canonical(path)
        except RecursionError:
            return ""

    def _canonical(self, path: str) -> str:
        for _ in range(40):
            folder, name = posixpath.split(posixpath.normpath(path) if "/.." not in path else path)
            if name in ("", "/"):
                return "/"
            if name in (".", ".."):
                folder = self._canonical(folder)
                return folder if name == "." else posixpath.dirname(folder)
            if folder not in self.folders:
                self.folders[folder] = self._canonical(folder)
            full = posixpath.join(self.folders[folder], name)
            if full not in self.links:
                return full
            path = posixpath.join(self.folders[folder], self.links[full])
        return ""

    def fitting(self, path: str, owner: Elf) -> str:
        """Return the file at `path` if it is an ELF that `owner` can load, else ""."""
        found = self.canonical(path)
        elf = self.elves.get(found)
        return found if elf and (elf.bits, elf.machine) == (owner.bits, owner.machine) else ""

    def expand(self, folders: Iterable[str], path: str, owner: Elf) -> list[str]:
        """Return folders with $ORIGIN, $LIB and $PLATFORM replaced as for the object at `path`."""
        values = {
            "ORIGIN": posixpath.dirname(path),
            "LIB": f"lib/{owner.machine}-linux-gnu",
            "PLATFORM": owner.machine,
        }
        result = []
        for folder in folders:
            for name, value in values.items():
                folder = folder.replace(f"${{{name}}}", value).replace(f"${name}", value)
            result.append(folder)
        return result

    def taken(self, name: str, owner: Elf) -> str:
        """Return the file for `name` from LD_LIBRARY_PATH, ld.so.cache or the default folders, or ""."""
        places = (self.fitting(f"{folder}/{name}", owner) for folder in self.library_path)
        return next(filter(None, places), "") or self.first(name, owner)

    def first(self, name: str, owner: Elf) -> str:
        """Return the file for `name` from ld.so.cache or the default folders, or ""."""
        triplet = f"{owner.machine}-linux-gnu"
        defaults = (
            f"/lib/{triplet}",
            f"/usr/lib/{triplet}",
            *(("/lib64", "/usr/lib64") if owner.bits == 64 else ()),
            "/lib",
            "/usr/lib",
        )
        places = [*self.cache.get(name, ()), *(f"{folder}/{name}" for folder in defaults)]
        return next(filter(None, (self.fitting(place, owner) for place in places)), "")

    def direct(self, path: str, name: str) -> str:
        """Return the file that the loader takes if the object at `path` is loaded alone, or ""."""
        owner = self.elves[path]
        if "/" in name:
            return self.fitting(name, owner)
        folders = [] if owner.runpath else self.expand(owner.rpath, path, owner)
        folders += [*self.library_path, *self.expand(owner.runpath, path, owner)]
        found = next(filter(None, (self.fitting(f"{folder}/{name}", owner) for folder in folders)), "")
        return found or self.first(name, owner)

    def resolve(self) -> dict[str, dict[str, tuple[str, str]]]:
        """Return path → needed name → (how, file) of every dynamic object.

        How is ``loader``, ``preload`` or ``missing``.
        """
        result: dict[str, dict[str, tuple[str, str]]] = {}
        parents: dict[str, set[str]] = {}
        for path, elf in self.elves.items():
            if elf.dynamic and elf.machine != "cuda":
                result[path] = {name: ("loader", self.direct(path, name)) for name in elf.needed}
                for _, found in result[path].values():
                    if found:
                        parents.setdefault(found, set()).add(path)
        for path, names in result.items():
            for name in [name for name, (_, found) in names.items() if not found]:
                names[name] = self.indirect(path, name, parents)
        return result

    def indirect(self, path: str, name: str, parents: Mapping[str, set[str]]) -> tuple[str, str]:
        """Return (how, file) of a library that the object at `path` does not find alone."""
        if found := self.inherited(path, name, parents):
            return "loader", found
        candidates = self.preloaded.get(name, []) if path.startswith(self.preloads) else []
        loaded = next(filter(None, (self.fitting(item, self.elves[path]) for item in candidates)), "")
        return (PRELOAD, loaded) if loaded else ("missing", "")

    def inherited(self, path: str, name: str, parents: Mapping[str, set[str]]) -> str:
        """Return the file from DT_RPATH of an object above `path` (unused if `path` has a DT_RUNPATH), or ""."""
        owner = self.elves[path]
        seen, waiting = {path}, sorted(parents.get(path, ()))
        while waiting and not owner.runpath:
            above = waiting.pop()
            if above in seen:
                continue
            seen.add(above)
            waiting += sorted(parents.get(above, ()))
            elf = self.elves[above]
            folders = [] if elf.runpath else self.expand(elf.rpath, above, elf)
            found = next(filter(None, (self.fitting(f"{folder}/{name}", owner) for folder in folders)), "")
            if found:
                return found
        return ""
