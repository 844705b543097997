"""A unit that compiles with the host's C compiler, for tests of the compiler cache."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from envbuild.build.plan.units import Input, Unit
from envbuild.core.store.store import Store
from tests.support import tiny_root as kit

FILES = {
    "a.c": "int a(void) { return A; }\n",
    "b.c": "int b(void) { return 2; }\n",
    "c.c": "int c(void) { return 3; }\n",
}
COMPILE = (
    "mkdir -p /opt/out && cd /run/envbuild/archives && "
    "for file in *.c; do gcc -O2 -g0 {} -c $file -o /opt/out/$file.o || exit; done"
)


def toolchain(store: Store) -> Unit:
    """Return a unit with the host's C compiler, at its own places."""
    driver = Path(shutil.which("gcc") or "").resolve()
    files = {driver}
    for name in ("cc1", "as"):
        found = subprocess.run(["gcc", f"-print-prog-name={name}"], capture_output=True, text=True, check=True).stdout
        files.add(Path(shutil.which(found.strip()) or found.strip()))
    places = {str(path).lstrip("/"): path.resolve() for path in files}
    places["usr/bin/as"] = next(path for path in places.values() if path.name.endswith("-as"))
    for path in list(places.values()):
        text = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        places |= {place.lstrip("/"): Path(place).resolve() for place in re.findall(r"=> (/\S+)", text)}
    # one folder at the top, which unpacking removes
    places = {re.sub("^lib", "usr/lib", place): path for place, path in places.items()}
    entries = [(kit.entry(place), path.read_bytes()) for place, path in sorted(places.items())]
    archive = kit.add(store, "gcc.tar", kit.tar_bytes(entries, "w"))
    copy = f"cp -r /run/envbuild/gcc/. /usr/ && ln -s {driver.name} /usr/bin/gcc"
    copy += " && mkdir -p /usr/include && touch /usr/include/stdc-predef.h"  # gcc includes it into every file
    return kit.unit("root-build-x", copy, inputs=(Input("gcc", "tree", (archive,)),))


def compiling(store: Store, *more: str, files: Mapping[str, str] = FILES, flags: str = "-DA=1") -> Unit:
    """Return a unit that compiles three files, and then runs `more`."""
    blobs = tuple(kit.add(store, name, text.encode()) for name, text in files.items())
    inputs = (Input("archives", "files", blobs),)
    return kit.unit(
        "x", COMPILE.format(flags), *more, lowers=("base", "root-build-x"), inputs=inputs, keep=("/opt/out",)
    )
