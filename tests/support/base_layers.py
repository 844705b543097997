"""A base made of the layers of an image: the tiny root of tiny_root, and two layers that change it in every way. Also
run by another user's Python, which has no pytest."""

from __future__ import annotations

import gzip
import json
import sys
import tarfile
from pathlib import Path

from envbuild.build.engines import deb
from envbuild.build.plan.units import Input, Plan, Unit
from envbuild.build.steps import Step
from envbuild.core.store.store import Store
from envbuild.oci.config import ImageConfig
from tests.support import tiny_root as kit

LAYERS = ("000", "001", "002")
CAPABILITY = b"\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"  # cap_net_raw=ep
STEPS = (
    "test ! -e /data/two && test ! -e /data/sub/deep && cat /data/sub/new /opt/real/through > /etc/made",
    "chown 1000 /etc/issue; rm /opt/plain; ls -a /data > /etc/listed",
)


def capable(name: str) -> tuple[tarfile.TarInfo, bytes]:
    info = kit.entry(name)
    info.pax_headers = {"SCHILY.xattr.security.capability": CAPABILITY.decode("utf-8", "surrogateescape")}
    return info, b"capable"


def contents(tiny: Path) -> list[bytes]:
    """Return the tars of the three layers."""
    import io

    name, content = deb.open_member(tiny, "data.tar")
    assert name == "data.tar.gz"
    link, folder, hard = tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.LNKTYPE
    second = [
        (kit.entry("opt/real", folder, 0o1777), b""),
        (kit.entry("opt/alias", link, link="real"), b""),
        (kit.entry("opt/plain", mode=0o640, uid=1000), b"plain"),
        (kit.entry("opt/set", mode=0o4755), b"set"),
        capable("opt/capable"),
        (kit.entry("opt/folder", folder), b""),
        (kit.entry("opt/folder/in", mode=0o644), b"in"),
        (kit.entry("opt/file", mode=0o644), b"file"),
        (kit.entry("opt/fifo", tarfile.FIFOTYPE), b""),
        (kit.entry("data/.wh.two", mode=0o644), b""),
        (kit.entry("data/sub/new", mode=0o644), b"new\n"),
        (kit.entry("data/sub/.wh..wh..opq", mode=0o644), b""),
        (kit.entry("data/third", hard, mode=0o644, link="data/one"), b""),
        (kit.entry("opt/long/" + "d" * 120 + "/f" * 30, mode=0o600), b"long"),
    ]
    third = [
        (kit.entry("opt/alias/through", mode=0o644), b"through\n"),
        (kit.entry("opt/folder", link, link="/opt/real"), b""),
        (kit.entry("opt/file", folder, 0o700), b""),
        (kit.entry("opt/file/below", mode=0o644), b"below"),
        (kit.entry("data/one", mode=0o644), b"one is another now\n"),
        (kit.entry("etc/.wh.other", mode=0o644), b""),
        (kit.entry("etc/other", mode=0o644), b"anew"),
    ]
    file = io.BytesIO(content.read())
    return [gzip.decompress(file.getvalue()), kit.tar_bytes(second, "w:"), kit.tar_bytes(third, "w:")]


def blobs(tiny: Path) -> list[tuple[str, bytes]]:
    """(compression, blob) of the three layers: each compressed in another way."""
    import zstandard

    first, second, third = contents(tiny)
    return [("+gzip", gzip.compress(first, 1, mtime=0)), ("+zstd", zstandard.compress(second)), ("", third)]


def plan(store: Store, tiny: Path, *commands: str) -> Plan:
    """Return a plan of the base, with `commands` run on it, and of a unit above."""
    parts = tuple(kit.add(store, name, blob) for name, (_, blob) in zip(LAYERS, blobs(tiny), strict=True))
    base = Unit(
        "base",
        "an image",
        tuple(Step(command) for command in commands),
        inputs=(Input("layers", "files", parts),),
        layers=LAYERS,
        epoch=kit.EPOCH,
    )
    above = kit.unit("above", "cat /data/sub/new > /opt/above; rm /opt/set")
    return Plan("test", (base, above), ImageConfig(), kit.EPOCH)


if __name__ == "__main__":
    folder, package = map(Path, sys.argv[1:])
    opened = Store.open(folder)
    built = kit.Embedded(packs=()).build(
        plan(opened, package, *STEPS), opened, kit.SilentReporter(), kit.BuildOptions()
    )
    print(json.dumps([layer.diff_id for layer in built.layers]))
