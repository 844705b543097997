"""A base image made of the host's own shell and Python, which envbuild builds on in seconds, without a network."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support import tiny_root
from tests.support.debian_archive import installed
from tests.support.local_registry import Layout, file, folder, os_release, symlink, tar

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
HOME = "usr/local"  # of Python in the image
MODULES = ("_bisect", "_csv", "_struct", "mmap", "math", "select", "fcntl", "_posixsubprocess", "binascii", "zlib")
OTHERS = {"test", "idlelib", "ensurepip", "lib2to3", "__pycache__", "tkinter", "turtledemo", "distutils", "pydoc_data"}
OTHERS |= {"site-packages", "dist-packages", "lib-dynload", "asyncio", "unittest", "xml", "sqlite3", "multiprocessing"}


def python_files() -> Iterator[tuple[str, Path]]:
    """Yield (place in the image, file of the host) of an interpreter, its library, and what both load."""
    program = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    modules = [path for name in MODULES for path in (library / "lib-dynload").glob(f"{name}.*.so")]
    yield f"{HOME}/bin/python{VERSION}", program
    for path in modules:
        yield f"{HOME}/lib/python{VERSION}/lib-dynload/{path.name}", path
    for root, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in OTHERS and not name.startswith("config-")]
        for name in names:
            if name.endswith(".py"):
                yield f"{HOME}/lib/python{VERSION}/{(Path(root) / name).relative_to(library)}", Path(root) / name
    for path in (program, *modules):
        for place, found in tiny_root.loaded_libraries(path).items():
            # One that only this interpreter finds, in its own folder, is where every loader searches.
            own = place.startswith(f"{sys.base_prefix}/") and sys.base_prefix != "/usr"
            yield f"usr/lib/{found.name}" if own else place.lstrip("/"), found


def host_layer(stanzas: Sequence[str]) -> bytes:
    """Return the tar of a Debian 13 in which the packages of `stanzas` count as installed."""
    files = dict(tiny_root.host_files(f"{tiny_root.PROGRAMS} ldconfig find sed xargs tr dirname basename"))
    files |= dict(python_files())
    folders = {str(parent) for place in files for parent in Path(place).parents if str(parent) != "."}
    folders |= {"etc", "opt", "root", "var", "var/tmp", "var/log", "var/cache", "var/lib", "var/lib/dpkg"}
    content = [
        file(place, path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)
        for place, path in sorted(files.items())
    ]
    return tar(
        *(folder(name) for name in sorted(folders)),
        folder("tmp", 0o1777),
        symlink("bin", "usr/bin"),
        symlink("sbin", "usr/sbin"),
        folder("usr/sbin"),
        *content,
        symlink("usr/sbin/ldconfig", "../bin/ldconfig"),
        symlink("usr/bin/python3", f"../local/bin/python{VERSION}"),
        file("usr/bin/dpkg", b"x", 0o755),
        file("usr/bin/apt-get", b"x", 0o755),
        symlink("etc/os-release", "../usr/lib/os-release"),
        os_release(),
        file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
        file("etc/group", b"root:x:0:\n"),
        file("var/lib/dpkg/status", f"{installed(*stanzas)}\n".encode()),
    )


def write_host_base(place: Path, stanzas: Sequence[str]) -> None:
    """Write the layout of an image of that layer, with the tag 1."""
    layout = Layout(place)
    layout.add(layout.image([host_layer(stanzas)], env=[f"PATH=/{HOME}/bin:/usr/bin:/bin"]), "1")
