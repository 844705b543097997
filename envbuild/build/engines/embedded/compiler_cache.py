"""Cache of compiled objects: a unit that ended early, or changed a little, compiles only what is new.

The machine's ccache is mounted into the boxes of units that compile, in front of their compilers: each keeps its path,
so no build system sees another one. Neither plans nor keys know the cache, and a unit has the same product with it and
without it. ccache compares sources, headers and options itself; the compilers are compared by the layers that they
come from.

A step may write anything into the cache that it uses, and so may everything that runs in it: sources, and the wheels
that a build requires. So a cache is shared by units of one name alone, with the same inputs on the same layers, built
by one user: nothing reaches another version. Only the commands of the recipe may differ.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from envbuild.build.engines.embedded import mounts
from envbuild.build.plan.units import Product, Unit
from envbuild.build.steps import INPUTS
from envbuild.core.file_status import file_status
from envbuild.core.programs import run_program
from envbuild.core.rooted_tree import RootedTree
from envbuild.core.store.gc import remove_folder
from envbuild.core.store.store import Store, UnitRecord
from envbuild.core.store.usage import size_of
from envbuild.core.userns.removal import remove_trees

FOLDER = "ccache"  # of the store
CONTENT = "content"  # of the folder of a cache
PLACE = f"{INPUTS}/ccache"  # in a box
SOURCES = ("archives", "sdists")  # a unit with such an input compiles
GCC = re.compile(r"[a-z0-9_]+-linux-gnu-(gcc|g\+\+)-\d+")  # the files that all other names of gcc are links to
NVCC = ("/opt/cuda/bin/nvcc", "/usr/local/cuda/bin/nvcc")
# Before the name of a compiler, in its folder: gcc and nvcc find their parts from there. No dot: nvcc prints its name
# up to the first one, and CMake identifies it by that.
HIDDEN = "envbuild-"
ONE_LIMIT = "5G"  # of one cache
LIMIT = 20 << 30  # of all caches of a store
# Compilers that nvcc calls get files with random names, which no cache has: they are called without it.
WRAPPER = """\
#!/bin/sh
test -z "$ENVBUILD_NVCC" || exec {real} "$@"
{nvcc}export CCACHE_DIR={place}/cache CCACHE_MAXSIZE={limit}
export CCACHE_COMPILERCHECK="string:{toolchain} $NVCC_PREPEND_FLAGS $NVCC_APPEND_FLAGS"
exec {ccache} {real} "$@"
"""


@functools.lru_cache(maxsize=1)
def find_program() -> tuple[str, ...]:
    """Return the files of the machine's ccache: itself, its loader (empty: it needs none) and its libraries.

    There are none on a machine without ccache."""
    path = shutil.which("ccache")
    if not path:
        return ()
    listed = run_program(["ldd", path], text=True) if shutil.which("ldd") else None
    if listed is None or "ccache version" not in run_program([path, "--version"], text=True).stdout:
        return ()
    if listed.returncode:  # not a dynamic executable
        return (str(Path(path).resolve()), "")
    libraries = re.findall(r"=> (/\S+)", listed.stdout)
    loaders = re.findall(r"^\s*(/\S+)(?= \(|$)", listed.stdout, re.MULTILINE)
    if "not found" in listed.stdout or len(loaders) != 1:
        return ()
    return (str(Path(path).resolve()), *loaders, *libraries)


def unit_cache(unit: Unit, records: Mapping[str, UnitRecord], store: Store) -> dict[str, Any] | None:
    """Return what the process of a unit needs for its cache; None if it does not compile, or without ccache."""
    program = find_program() if is_compiling(unit) else ()
    if not program:
        return None
    layers = [records[name].layer for name in unit.lowers]
    toolchain = hashlib.sha256(" ".join(layer.diff_id for layer in layers if layer).encode()).hexdigest()
    key = hashlib.sha256(f"{toolchain} {describe_inputs(unit, records)}".encode()).hexdigest()
    folder = open_cache(store.own_folder(FOLDER) / f"{unit.name}-{key[:32]}", store)
    return {"folder": str(folder.resolve()), "program": list(program), "toolchain": toolchain, "keep": list(unit.keep)}


def open_cache(folder: Path, store: Store) -> Path:
    """Return the folder of a cache that is mounted, below `folder`, which no step reaches and this user can rename.

    A step can give the mounted one to another id, or close it: then another cache is begun. Raises OSError.
    """
    content = folder / CONTENT
    if os.path.lexists(content):
        found = file_status(content, follow=False)
        mode = stat.S_IMODE(found.stat.st_mode) & stat.S_IRWXU
        if not stat.S_ISDIR(found.stat.st_mode) or found.owner != os.geteuid() or mode != stat.S_IRWXU:
            remove_folder(folder, store)
    folder.mkdir(mode=0o700, exist_ok=True)
    content.mkdir(mode=0o700, exist_ok=True)
    os.utime(folder)
    return content


def describe_inputs(unit: Unit, records: Mapping[str, UnitRecord]) -> str:
    """Return all inputs of a unit as text: each of them may hold a program that a step starts."""
    described = [
        (item.name, item.kind, [(blob.name, blob.sha256) for blob in item.blobs], item.texts,
         [records[name].wheels for name in item.units])
        for item in unit.inputs
    ]  # fmt: skip
    return json.dumps(described)


def is_compiling(unit: Unit) -> bool:
    """Return whether a unit compiles source code, and leaves nothing of the folders of its compilers in its layer."""
    sources = any(item.name in SOURCES for item in unit.inputs)
    return sources and (unit.product == Product.WHEEL or bool(unit.keep))


def trim_caches(todo: Iterable[Unit], store: Store) -> None:
    """Remove the caches that were not used for longest, where all together are larger than `LIMIT`; nothing if no unit
    in `todo` uses one."""
    if not any(is_compiling(unit) for unit in todo) or not find_program():
        return
    top = store.own_folder(FOLDER)
    found = sorted((path for path in top.iterdir() if path.is_dir()), key=lambda path: -path.lstat().st_mtime)
    total, old = 0, []
    for path in found:
        total += size_of(path)
        old += [path] if total > LIMIT else []
    with contextlib.suppress(OSError):  # another build works in it
        remove_trees(old)


def mount_cache(cache: Mapping[str, Any], tree: RootedTree, work: Path) -> None:
    """Mount ccache and its cache, and put it in front of the compilers of `tree`. Raises SetupError, OSError."""
    program, loader, *libraries = cache["program"]
    for source in filter(None, (program, loader, *libraries)):
        mounts.bind_mount(Path(source).resolve(), tree, f"{PLACE}/program/{Path(source).name}")
    mounts.bind_mount(Path(cache["folder"]), tree, f"{PLACE}/cache", read_only=False)
    ccache = f"{PLACE}/program/{Path(program).name}"
    if loader:
        ccache = f"{PLACE}/program/{Path(loader).name} --library-path {PLACE}/program {ccache}"
    scripts = work / "compilers"
    scripts.mkdir(exist_ok=True)
    for number, path in enumerate(find_compilers(tree, cache["keep"])):
        folder, _, name = path.rpartition("/")
        real = f"{folder}/{HIDDEN}{name}"
        with tree.open(path) as own:
            mounts.bind_mount(own.handle, tree, real)
        script = scripts / f"{number}-{name}"
        nvcc = "export ENVBUILD_NVCC=1\n" if name == "nvcc" else ""
        values = {"place": PLACE, "limit": ONE_LIMIT, "toolchain": cache["toolchain"]}
        script.write_text(WRAPPER.format(real=real, nvcc=nvcc, ccache=ccache, **values))
        script.chmod(0o755)
        mounts.bind_mount(script, tree, path)


def find_compilers(tree: RootedTree, keep: list[str]) -> Iterator[str]:
    """Yield the paths of the compilers, apart from those in folders that become the layer."""
    found = []
    if tree.find("/usr/bin"):
        with tree.open_folder("/usr/bin") as folder, os.scandir(folder.handle) as entries:
            found = sorted(f"/usr/bin/{entry.name}" for entry in entries if GCC.fullmatch(entry.name))
    seen: set[tuple[int, int]] = set()
    for path in (*found, *NVCC):
        status = tree.find(path)
        if status is None or not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        if not any(path.startswith(f"{place}/") for place in keep):
            yield path
