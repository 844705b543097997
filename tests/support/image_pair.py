"""Two images that differ in everything that is compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuild.lock.lockfile import dump_lock
from envbuild.lock.model import DebianFile, Lock, PythonFile, SourceFile, UnitLock
from tests.support.packs import file, folder, hard, pack, symlink
from tests.support.squashfs_image import write_image

SITE = b"opt/venv/lib/python3.13/site-packages/"
SHA = "0" * 64
RC = """\
# io.envbuild.target cpu
# org.opencontainers.image.title small

mkdir -p "/work space" 2> /dev/null
cd "/work space" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec "$@"
else
    exec '/bin/bash' '-l'
fi
"""


def debian(name: str, version: str) -> DebianFile:
    return DebianFile(f"{name}.deb", name, version, "debian:trixie/main", f"pool/{name}.deb", 1, SHA)


def lock_text(ucx: str, numpy: str, commit: str) -> bytes:
    debians = {item.file: item for item in (debian("base-files", "13"), debian("gcc", "14"), debian("libc6", "2.41"))}
    python = PythonFile(f"numpy-{numpy}.whl", "NumPy", numpy, 1, SHA)
    source = SourceFile("ucx.tar", f"github:openucx/ucx@{commit}", SHA)
    units = {
        "base": UnitLock(debian=("libc6.deb",), essential=("base-files.deb",)),
        "venv": UnitLock(python=(python.file,)),
        "build-ucx": UnitLock(debian=("gcc.deb",), sources=("ucx.tar",)),
    }
    lock = Lock(
        image="small", inputs="sha256:" + SHA, base="debian:13", arch="amd64", python="3.13", epoch=1,
        tools={"envbuild": "1", "uv": "1"},
        versions={"ucx": ucx}, debian=debians, python_files={python.file: python}, sources={"ucx.tar": source},
        units=units,
    )  # fmt: skip
    return dump_lock(lock).encode()


def resolution(**versions: str) -> bytes:
    return json.dumps({"image": "small", "target": "cpu", "versions": versions}).encode()


def status(**versions: str) -> bytes:
    """/var/lib/dpkg/status, with one package that was removed."""
    gone = "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n"
    texts = (f"Package: {name}\nStatus: install ok installed\nVersion: {v}\n" for name, v in versions.items())
    return (gone + "\n".join(texts)).encode()


BEFORE = [
    folder(b"bin"),
    file(b"bin/sh", b"x" * 5000, 0o755),
    file(b"etc/environment", b"LANG=C\nPATH=/bin\n"),
    file(b"etc/envbuild/lock.yaml", lock_text("1.19", "2.0", "a" * 40)),
    file(b"etc/envbuild/resolution.json", resolution(ucx="1.19", gone="1")),
    file(b"etc/rc", RC.encode()),
    file(b"opt/ucx/lib/libucp.so", b"u" * 400_000),
    hard(b"opt/ucx/lib/libucp.so.0", b"opt/ucx/lib/libucp.so"),
    file(b"opt/ucx/lib/same", b"s" * 300_000),
    file(b"opt/ucx/old", b"o" * 70),
    symlink(b"opt/link", b"ucx/old"),
    file(SITE + b"numpy/core.so", b"n" * 1_000_000),
    file(SITE + b"numpy-2.0.dist-info/METADATA", b"m"),
    file(SITE + b"nvidia/nccl/lib/libnccl.so.2", b"c" * 9000),
    file(b"srv/one", b"1", 0o644, uid=3),
    file(b"srv/two", b"2", mtime=5),
    file(b"srv/is", b"a file"),
    file(b"var/lib/dpkg/status", status(libc6="2.41", zlib1g="1.3")),
]
AFTER = [
    folder(b"bin"),
    file(b"bin/sh", b"x" * 5000, 0o755),
    file(b"etc/environment", b"LANG=C.UTF-8\nPATH=/bin\nNEW=1\n"),
    file(b"etc/envbuild/lock.yaml", lock_text("1.20", "2.1", "b" * 40)),
    file(b"etc/envbuild/resolution.json", resolution(ucx="1.20", new="2")),
    file(b"etc/rc", RC.replace("'-l'", "'-i'").encode()),
    file(b"opt/ucx/lib/libucp.so", b"u" * 399_999 + b"v"),
    hard(b"opt/ucx/lib/libucp.so.0", b"opt/ucx/lib/libucp.so"),
    file(b"opt/ucx/lib/same", b"s" * 300_000),
    symlink(b"opt/link", b"ucx/lib"),
    file(SITE + b"numpy/core.so", b"n" * 1_200_000),
    file(SITE + b"numpy-2.1.dist-info/METADATA", b"m"),
    file(SITE + b"nvidia/nccl/lib/libnccl.so.2", b"c" * 9000),
    file(b"srv/one", b"1", 0o600, uid=4),
    file(b"srv/two", b"2", mtime=6),
    folder(b"srv/is"),
    file(b"srv/new\nline", b"3" * 10),
    file(b"var/lib/dpkg/status", status(libc6="2.42", zlib1g="1.3")),
]


def image(place: Path, layer) -> Path:
    made = pack(place.with_suffix(".pack"), layer, block=131072)
    return write_image([made], place, epoch=1000, all_root=False).path


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[str, str]:
    place = tmp_path_factory.mktemp("pair")
    return str(image(place / "a.sqsh", BEFORE)), str(image(place / "b.sqsh", AFTER))
