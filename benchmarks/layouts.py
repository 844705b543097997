"""Images to measure with: OCI layouts with gzip layers, as registries serve them.

`from_tree` cuts a folder of this machine (``/usr``) into layers of about the requested size, with a layer of
deletions and an application layer on top; `changed` puts another application layer on any layout; `generated` makes
any number of files and bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from isal import igzip

MB = 1_000_000
GZIP_LEVEL = 3  # isal's best; registries hold what docker's gzip wrote, within a few percent of the same size


class Layout:
    """An OCI layout being written."""

    def __init__(self, path: Path) -> None:
        self.path, self.layers, self.diff_ids = path, [], []  # type: ignore[var-annotated]
        (path / "blobs" / "sha256").mkdir(parents=True)

    def blob(self, content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (self.path / "blobs" / "sha256" / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    def layer(self, write: Callable[[tarfile.TarFile], object], *, fast: bool = True) -> None:
        """Add a layer that `write` fills."""
        temporary = self.path / "layer"
        with temporary.open("wb") as raw:
            packed: Any = (
                igzip.GzipFile(fileobj=raw, mode="wb", compresslevel=GZIP_LEVEL, mtime=0)
                if fast
                else gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0)
            )
            with packed, Hashed(packed) as hashed, tarfile.open(fileobj=hashed, mode="w|", bufsize=1 << 20) as tar:  # type: ignore[call-overload]
                write(tar)
            self.diff_ids.append(f"sha256:{hashed.sha256.hexdigest()}")
        with temporary.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = temporary.stat().st_size
        temporary.rename(self.path / "blobs" / "sha256" / digest)
        kind = "application/vnd.oci.image.layer.v1.tar+gzip"
        self.layers.append({"mediaType": kind, "digest": f"sha256:{digest}", "size": size})

    def close(self) -> Path:
        """Write configuration, manifest and index."""
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/usr/bin:/bin"], "Cmd": ["/bin/sh"]},
            "rootfs": {"type": "layers", "diff_ids": self.diff_ids},
            "history": [{"created_by": "benchmark"} for _ in self.layers],  # registries want it for older clients
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self.blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
            "layers": self.layers,
        }
        described = self.blob(json.dumps(manifest).encode(), manifest["mediaType"])  # type: ignore[arg-type]
        described["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
        described["platform"] = {"architecture": "amd64", "os": "linux"}
        (self.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
        (self.path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        return self.path


class Hashed(io.RawIOBase):
    """Computes the digest of what is written through it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.sha256 = file, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        self.file.write(data)
        return len(data)


def from_tree(source: Path, out: Path, megabytes: int, layers: int = 3) -> Path:
    """Return a layout of `megabytes` of the files below `source`, in `layers` layers, with a deletion and an
    application on top."""
    layout = Layout(out)
    share = megabytes * MB // layers
    files = walk(source)
    shell = Path("/bin/sh").resolve()
    removed: list[str] = []

    def add(tar: tarfile.TarFile, first: bool) -> None:
        left = share
        if first:
            tar.add(shell, "bin/sh")
        for number, path in enumerate(files):
            name = str(path).lstrip("/")
            tar.add(path, name, recursive=False)
            if path.is_file() and not path.is_symlink():
                left -= path.stat().st_size
                if number % 40 == 0:
                    removed.append(name)
            if left <= 0:
                return

    def delete(tar: tarfile.TarFile) -> None:
        for name in removed:
            folder, _, base = name.rpartition("/")
            tar.addfile(tarfile.TarInfo(f"{folder}/.wh.{base}"))

    for number in range(layers):
        layout.layer(lambda tar, first=number == 0: add(tar, first), fast=False)  # type: ignore[misc]
    layout.layer(delete)
    layout.layer(application(1))
    return layout.close()


def walk(source: Path) -> Iterator[Path]:
    """Yield everything below a folder that a layer can contain, folders first, in byte order."""
    for top, folders, names in os.walk(source):
        folders.sort()
        yield Path(top)
        for name in sorted(names):
            path = Path(top, name)
            if path.is_symlink() or path.is_file():
                yield path


def application(seed: int, megabytes: int = 30) -> Callable[[tarfile.TarFile], None]:
    """Write a layer of about 30 MB of half compressible files below /app, as a developer changes all day."""

    def write(tar: tarfile.TarFile) -> None:
        source = random.Random(seed)
        for number in range(300):
            half = megabytes * MB // 600
            content = source.randbytes(half) + (b"def step(batch):\n    return model(batch)\n" * half)[:half]
            entry = tarfile.TarInfo(f"app/{number // 20:02d}/file{number:03d}.py")
            entry.size, entry.mode, entry.mtime = len(content), 0o644, 1_700_000_000
            tar.addfile(entry, io.BytesIO(content))

    return write


def changed(source: Path, out: Path, seed: int) -> Path:
    """Return the layout `source` with another application layer on top; blobs below it are hard links."""
    layout = Layout(out)
    index = json.loads((source / "index.json").read_text())
    manifest = json.loads(blob(source, index["manifests"][0]["digest"]).read_bytes())
    config = json.loads(blob(source, manifest["config"]["digest"]).read_bytes())
    for layer, diff_id in zip(manifest["layers"][:-1], config["rootfs"]["diff_ids"][:-1], strict=True):
        os.link(blob(source, layer["digest"]), blob(out, layer["digest"]))
        layout.layers.append(layer)
        layout.diff_ids.append(diff_id)
    layout.layer(application(seed))
    return layout.close()


def blob(layout: Path, digest: str) -> Path:
    """Return the file of a blob."""
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


def tag(layout: Path) -> str:
    """Return the name of the image."""
    described = json.loads((layout / "index.json").read_text())["manifests"][0]
    return str(described["annotations"]["org.opencontainers.image.ref.name"])


def blobs(layout: Path) -> list[Path]:
    """Return the files of an image's layers, bottom first."""
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(blob(layout, index["manifests"][0]["digest"]).read_bytes())
    return [blob(layout, layer["digest"]) for layer in manifest["layers"]]


def generated(out: Path, files: int, megabytes: int) -> Path:
    """Return a layout of `files` files with `megabytes` of text-like content in three layers."""
    layout = Layout(out)
    source = random.Random(7)
    words = [source.randbytes(24).hex().encode() for _ in range(4096)]
    pool = b" ".join(source.choice(words) for _ in range(1 << 19))  # about 25 MB, compressible as text is
    size = megabytes * MB // files

    def write(tar: tarfile.TarFile, part: int) -> None:
        if part == 0:
            tar.add(Path("/bin/sh").resolve(), "bin/sh")
        for number in range(part * files // 3, (part + 1) * files // 3):
            entry = tarfile.TarInfo(f"data/{number // 1000:04d}/{number % 1000:03d}.txt")
            length = source.randrange(size // 2, size * 3 // 2)
            at = source.randrange(len(pool) - length)
            content = pool[at : at + length]
            entry.size, entry.mode, entry.mtime = len(content), 0o644, 1_700_000_000
            tar.addfile(entry, io.BytesIO(content))

    for part in range(3):
        layout.layer(lambda tar, part=part: write(tar, part))  # type: ignore[misc]
    return layout.close()
