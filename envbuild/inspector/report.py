"""Report of an image about itself: one line of JSON after a mark."""

from __future__ import annotations

import json
import os
import platform
import posixpath
import re
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from . import file_walk, machine_code, packages, pyc
from .dynamic_loader import Loader, read_cache
from .elf import LIMITS, Elf
from .link_check import Linker

MARK = "ENVBUILD-SEEN "
LIMIT = "limit"
SINGLES = ("libnccl", "libucp", "libucc", "libibverbs", "libfabric", "libmpi", "libcudart")
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
VENV = "/opt/venv"
PYTHONS = (f"{VENV}/bin/python", "/usr/bin/python3")
NO_PREFIX = (VENV, "/opt/cuda")  # other folders of /opt are one product each, if the options do not name them
CUOBJDUMP = ("/opt/cuda/bin/cuobjdump", "/usr/local/cuda/bin/cuobjdump")
COMPARED, LARGEST = 12, 64 << 20  # cuobjdump and this program read files as a whole: only some, and no large ones


def main(options: Mapping[str, Any]) -> None:
    """Print the document. `options`: "singles" (library names without .so), "cuobjdump" (bool), "prefixes" (folders
    that the image's own products are in; None: those of /opt), "compiled" (what was compiled for this image: "folders",
    and "dists" by name). Where a limit of the machine ends the inspection, the document has `LIMIT` alone: why."""
    try:
        document = make_document(options)
    except OSError as error:
        if error.errno not in LIMITS:
            raise
        document = {LIMIT: str(error)}
    sys.stdout.write("\n" + MARK + json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n")


def make_document(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report as JSON values."""
    started = time.process_time()
    found = file_walk.walk_image()
    dists, owners = packages.list_dists()
    debian, broken = _read_dpkg()
    cache, cache_error = _read_cache()
    sites = sorted({str(dist["site"]) for dist in dists})
    path = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    loader = Loader(found.elves, found.links, cache, path, sites)
    resolved = loader.resolve()
    made = options.get("compiled") or {"folders": [], "dists": []}
    prefixes, folders = options.get("prefixes"), made["folders"]
    if prefixes is None:
        tops = {"/".join(name.split("/")[:3]) for name in found.elves if name.startswith("/opt/")}
        prefixes = sorted(tops - set(NO_PREFIX))
        folders = folders or prefixes
    python = next(filter(found.elves.__contains__, map(loader.canonical, PYTHONS)), "")
    linker = Linker(loader, resolved, sites, owners, prefixes, python)
    linked = tuple(f"{folder}/" for folder in (VENV, *folders))
    link = linker.check(name for name in resolved if name.startswith(linked) or linker.product_on_torch(name))
    code = machine_code.scan_compiled(found, owners, made, linker)
    native = Elf(64 if sys.maxsize > 1 << 32 else 32, platform.machine(), 3, "", "", (), (), (), True, {})
    return {
        "schema": 1,
        "interpreter": platform.python_version(),
        "machine": native.machine,
        "prefixes": prefixes,
        "debian": debian,
        "debian_broken": broken,
        "python": dists,
        "clashes": packages.find_clashes(),
        "elves": {path: _describe_elf(path, elf, resolved, owners, loader) for path, elf in found.elves.items()},
        "cache_error": cache_error,
        "cache_gone": sorted({path for _, path in cache if loader.canonical(path) not in found.elves}),
        "singles": {
            name: describe_library(name, found, loader, resolved, native) for name in options.get("singles", SINGLES)
        },
        "driver": {name: loader.taken(name, native) for name in DRIVER},
        "search": {"environment": path, "cache": _folders(cache, loader)},
        "link": link,
        "versions": linker.versions(resolved),
        "levels": found.levels,
        "compiled": code,
        "cuda": found.cuda,
        "cuobjdump": run_cuobjdump(found) if options.get("cuobjdump", True) else None,
        "pyc": pyc.check(found.pyc),
        "damaged": {**linker.damaged, **found.damaged},
        "setuid": found.setuid,
        "devices": found.devices,
        "open_folders": found.open_folders,
        "host_keys": found.host_keys,
        "leftovers": found.leftovers + _find_machine_id(),
        "other_mounts": found.other_mounts,
        "shell": os.access("/bin/sh", os.X_OK),
        "files": found.files,
        "cpu_seconds": round(time.process_time() - started, 2),
    }


def describe_library(
    name: str,
    found: file_walk.ImageFiles,
    loader: Loader,
    resolved: Mapping[str, Mapping[str, tuple[str, str]]],
    native: Elf,
) -> dict[str, Any]:
    """Describe one library: `files` (one path for each distinct file), `first` (SONAME → file on the loader's path),
    `used` (file → how many objects get it). auditwheel renames a library inside a wheel to NAME-<8 hex digits>.so;
    those count."""
    pattern = re.compile(re.escape(name) + r"(-[0-9a-f]{8})?\.so(\.[0-9].*)?")
    matches = {
        path: elf
        for path, elf in found.elves.items()
        if elf.kind == 3 and (pattern.fullmatch(posixpath.basename(path)) or pattern.fullmatch(elf.soname))
    }
    distinct = {found.inodes[path]: path for path in sorted(matches, reverse=True)}
    sonames = sorted({elf.soname for elf in matches.values() if elf.soname})
    used: dict[str, int] = {}
    for names in resolved.values():
        for _, target in names.values():
            if target in matches:
                used[target] = used.get(target, 0) + 1
    return {
        "files": sorted(distinct.values()),
        "first": {soname: loader.taken(soname, native) for soname in sonames},
        "used": used,
    }


def run_cuobjdump(found: file_walk.ImageFiles) -> dict[str, dict[str, list[str]]] | None:
    """Return the output of NVIDIA's own program for the smaller CUDA libraries: path → architectures of the `code` that
    the driver is given, and of all `ptx`, also that of relocatable objects; None if the image has no such program."""
    program = next((path for path in CUOBJDUMP if os.access(path, os.X_OK)), "")
    if not program:
        return None
    paths = sorted(
        (path for path in found.cuda if found.sizes[path] <= LARGEST), key=lambda path: (found.sizes[path], path)
    )
    result = {}
    for path in paths[-COMPARED:]:
        code = _list_code(program, path, "--list-elf") | _list_code(program, path, "--list-ptx")
        if code:  # some libraries of NVIDIA's own it calls invalid ELF and reads nothing (libcufile 1.17)
            ptx = _list_code(program, path, "--list-ptx", "--all-fatbin")
            result[path] = {"code": sorted(code), "ptx": sorted(ptx)}
    return result


def _list_code(program: str, path: str, *options: str) -> set[str]:
    run = subprocess.run([program, *options, path], capture_output=True, text=True, errors="replace", check=False)
    return {
        f"{'sm' if kind == 'cubin' else 'compute'}_{arch}"
        for arch, kind in re.findall(r"\.sm_([0-9]+[af]?)\.(cubin|ptx)", run.stdout)
    }


def _folders(cache: Sequence[tuple[str, str]], loader: Loader) -> list[str]:
    """Return folders that ld.so.cache leads to, by the name that it has and by their own."""
    paths = {path for _, path in cache}
    return sorted({posixpath.dirname(path) for path in paths | {loader.canonical(path) for path in paths}})


def _describe_elf(
    path: str,
    elf: Elf,
    resolved: Mapping[str, Mapping[str, tuple[str, str]]],
    owners: Mapping[str, str],
    loader: Loader,
) -> dict[str, Any]:
    """Return one ELF file, without empty values."""
    needs = resolved.get(path, {})
    not_found = elf.interpreter and loader.canonical(elf.interpreter) not in loader.elves
    value: dict[str, Any] = {
        "class": elf.bits,
        "machine": elf.machine,
        "soname": elf.soname,
        "rpath": list(elf.rpath),
        "runpath": list(elf.runpath),
        "dist": owners.get(path, ""),
        "needed": {name: target for name, (how, target) in needs.items() if how == "loader"},
        "preload": {name: target for name, (how, target) in needs.items() if how == "preload"},
        "missing": sorted(name for name, (how, _) in needs.items() if how == "missing"),
        "no_interpreter": elf.interpreter if not_found else "",
    }
    return {key: content for key, content in value.items() if content}


def _read_dpkg() -> tuple[dict[str, str], list[str]]:
    try:
        return packages.parse_dpkg_status(_read_file("/var/lib/dpkg/status").decode("utf-8", "replace"))
    except OSError:
        return {}, []


def _read_cache() -> tuple[Sequence[tuple[str, str]], str]:
    try:
        return read_cache(_read_file("/etc/ld.so.cache")), ""
    except (OSError, ValueError) as error:
        return (), f"/etc/ld.so.cache: {error}"


def _find_machine_id() -> list[str]:
    """Return /etc/machine-id if it names a machine: it belongs to one, and images are for many."""
    try:
        return ["/etc/machine-id"] if _read_file("/etc/machine-id").strip() not in (b"", b"uninitialized") else []
    except OSError:
        return []


def _read_file(path: str) -> bytes:
    """Return at most `LARGEST` bytes of a regular file. Raises OSError, also for a pipe, which is not waited for."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("not a regular file")
        return file.read(LARGEST)
