"""An image that starts, as layers, and what tests of `export` do with sources."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
from envbuild.export.foreign_image import ConvertedImage, convert_image
from envbuild.export.options import BLOCKS, ExportOptions
from envbuild.export.output_path import Output
from envbuild.net.site import Site
from envbuild.oci.sources import blob_stream
from envbuild.spec.project import Project
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.pack.format import PackFormat
from tests.support.local_registry import Layout, file, folder, symlink, tar

CONFIG: dict[str, Any] = {
    "Env": ["PATH=/opt/tool/bin:/usr/bin:/bin", "WORDS=a b"],
    "Entrypoint": ["/usr/bin/env"],
    "Cmd": ["sh", "-c", "echo it's started"],
    "WorkingDir": "/data",
    "Labels": {"org.example.title": "tiny"},
    "Volumes": {"/scratch": {}},
    "User": "alice",
}


def noise(size: int, seed: int = 1) -> bytes:
    """Bytes that no compressor makes smaller."""
    return random.Random(seed).randbytes(size)


def layers() -> list[bytes]:
    """Three layers, one of them of 3 MB that do not compress, one that deletes."""
    return [
        tar(
            folder("usr"),
            folder("usr/bin"),
            symlink("bin", "usr/bin"),
            file("usr/bin/sh", b"#!", 0o755),
            folder("etc"),
            file("etc/profile", b"PATH=/bin\n"),
            file("secret", b"gone" * 100),
        ),
        tar(folder("data"), file("data/noise", noise(3_000_000), uid=1000)),
        tar(file(".wh.secret"), file("data/text", b"text\n" * 40_000)),
    ]


def document(contents: Sequence[bytes], **changes: Any) -> dict[str, Any]:
    """Return the configuration of an image of `contents` (tars)."""
    from tests.support.local_registry import sha256

    return {
        "architecture": "amd64",
        "os": "linux",
        "created": "2025-10-01T00:00:00.123456789Z",
        "config": CONFIG,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(content)}" for content in contents]},
        **changes,
    }


def image(layout: Layout, contents: Sequence[bytes], compression: str = "gzip", **changes: Any) -> dict[str, Any]:
    """Return the descriptor of an image in `layout`, with a whole configuration."""
    from tests.support.local_registry import CONFIG as KIND
    from tests.support.local_registry import MANIFEST

    plain = layout.image(contents, compression=compression)
    manifest = json.loads((layout.path / "blobs/sha256" / plain["digest"][7:]).read_bytes())
    value = document(contents, **changes)
    manifest["config"] = layout.blob(json.dumps(value).encode(), KIND)
    found = layout.blob(json.dumps(manifest).encode(), MANIFEST)
    return {**found, "platform": {"architecture": value["architecture"], "os": value["os"]}}


def workspace(place: Path, **mirrors: str) -> Workspace:
    """Return a workspace with a store in `place`; `mirrors` of docker.io: ``docker=ADDRESS``."""
    store = Store.open(place)
    found = {"oci:docker.io/": (mirrors["docker"],)} if mirrors else {}
    return Workspace(Project(), Site(store.root, mirrors=found), store, SilentReporter())


def made(source: str, at: Workspace, out: Path | None = None, **options: Any) -> ConvertedImage:
    """`convert`, with options by name."""
    form = options.pop("form", PackFormat())
    block = next(name for name, size in BLOCKS.items() if size == form.block)
    wanted = ExportOptions(compression=form.codec, level=form.level, block=block, output=Output(out) if out else None)
    return convert_image(source, at, replace(wanted, **{"sha256": True, **options}))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without a pause."""
    monkeypatch.setattr(blob_stream.RegistryBlob.__init__, "__defaults__", (0, 0.01))
