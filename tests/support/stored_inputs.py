"""Inputs of every kind in a store, and locks that name them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from envbuild.core.store.store import Store
from envbuild.lock.model import BaseImage, DebianFile, Lock, PythonFile, SourceFile

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def blob(store: Store, content: bytes) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    store.blob(sha256).write_bytes(content)
    return sha256


def deb(store: Store, name: str, archive: str = "debian:trixie/main", path: str = "") -> DebianFile:
    content = f"package {name}".encode()
    path = path or f"pool/main/{name[0]}/{name}/{name}_1.0_all.deb"
    return DebianFile(path.rpartition("/")[2], name, "1.0", archive, path, len(content), blob(store, content))


def wheel(store: Store, name: str, origin: str = "") -> PythonFile:
    content = f"wheel {name} {origin}".encode()
    return PythonFile(f"{name}-1.0-py3-none-any.whl", name, "1.0", len(content), blob(store, content), origin)


def source(store: Store, file: str, origin: str, **more: bool) -> SourceFile:
    content = f"source {file} {origin}".encode()
    return SourceFile(file, origin, blob(store, content), len(content), **more)


def base(store: Store, name: str = "base", tag: str = "25.10") -> BaseImage:
    config, layer = (f"{part} of {name}".encode() for part in ("config", "layer"))
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"digest": f"sha256:{blob(store, config)}"},
            "layers": [{"digest": f"sha256:{blob(store, layer)}"}],
        }
    ).encode()
    digests = [hashlib.sha256(content).hexdigest() for content in (config, layer)]
    return BaseImage(
        f"registry.example:5000/group/{name}:{tag}", blob(store, manifest), digests[0],
        ((digests[1], len(layer), "application/vnd.oci.image.layer.v1.tar"),), "debian:13",
    )  # fmt: skip


def lock(*entries: DebianFile | PythonFile | SourceFile, image: BaseImage | None = None, name: str = "demo") -> Lock:
    return Lock(
        image=name, inputs="", base="debian:13", arch="amd64", python="3.13", epoch=0,
        tools={"envbuild": "1", "uv": "1"}, versions={},
        debian={entry.file: entry for entry in entries if isinstance(entry, DebianFile)},
        python_files={entry.file: entry for entry in entries if isinstance(entry, PythonFile)},
        sources={entry.file: entry for entry in entries if isinstance(entry, SourceFile)},
        units={}, base_image=image, distribution="debian:13",
    )  # fmt: skip


def everything(store: Store) -> Lock:
    """Return one input of every kind."""
    return lock(
        deb(store, "hello"),
        deb(store, "libssl3", "debian-security:trixie-security/main", "pool/updates/main/o/openssl/libssl3_3_all.deb"),
        deb(store, "gcc", "ubuntu:jammy/universe"),
        deb(store, "cuda", "apt:nvidia-cuda/ubuntu2204", "cuda_13_all.deb"),
        wheel(store, "numpy"),
        wheel(store, "torch", "pip:pytorch/cu113"),
        source(store, "ucx-1.20.1.tar.gz", "github:openucx/ucx@v1.20.1"),
        source(store, "ucc-0123456789ab.tar", f"github:openucx/ucc@{COMMIT}", git=True),
        source(store, "patch.orig.tar.xz", "debian:pool/main/p/patch/patch.orig.tar.xz"),
        source(store, "efa.tar.gz", "vendor:efa/installer/efa.tar.gz"),
        source(store, "own.tar.gz", "file:own/own.tar.gz"),
        image=base(store),
    )


def paths(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
