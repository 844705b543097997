"""Small images made by hand, and a real registry on a loopback port."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import select
import struct
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard

from envbuild.lock.base_image.lock_base import LockedBase
from tests.support.tools import tool

Lock = Callable[..., LockedBase]  # the fixture `lock`

EPOCH = 1_700_000_000
LAYER = "application/vnd.oci.image.layer.v1.tar"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
DIGEST = "a" * 64  # of no content
USER, PASSWORD = "reader", "right"
HTPASSWD = f"{USER}:$2y$05$abcdefghijklmnopqrstuu8xaCxxL82bnl.UY74PMksDxIJShppPC\n"  # bcrypt of PASSWORD


# layers
def file(name: str, content: bytes = b"", mode: int = 0o644, uid: int = 0) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime, info.uid, info.gid = len(content), mode, EPOCH, uid, uid
    return info, content


def special(name: str, kind: bytes, link: str = "", mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.mtime = kind, link, mode, EPOCH
    if kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
        info.devmajor, info.devminor = 1, 3
    return info, b""


def folder(name: str, mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    return special(name, tarfile.DIRTYPE, mode=mode)


def symlink(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return special(name, tarfile.SYMTYPE, target, 0o777)


def hardlink(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return special(name, tarfile.LNKTYPE, target)


def tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def os_release(name: str = "debian", version: str = "13") -> tuple[tarfile.TarInfo, bytes]:
    return file("usr/lib/os-release", f'PRETTY_NAME="x"\nID={name}\nVERSION_ID="{version}"\n'.encode())


STATUS = "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.22\n\n"


def metadata(place: str, name: str, version: str) -> tuple[tarfile.TarInfo, bytes]:
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: is not here\n"
    return file(f"{place}/{name.replace('-', '_')}-{version}.dist-info/METADATA", text.encode())


def system(python: str = "3.13") -> bytes:
    """Return a layer with what a base must have, and nothing that runs."""
    return tar(
        symlink("bin", "usr/bin"),
        file("usr/bin/dash", b"x", 0o755),
        symlink("usr/bin/sh", "dash"),
        file("usr/bin/dpkg", b"x", 0o755),
        file("usr/bin/apt-get", b"x", 0o755),
        symlink("etc/os-release", "../usr/lib/os-release"),
        os_release(),
        file("var/lib/dpkg/status", STATUS.encode()),
        symlink("usr/bin/python3", f"python{python}"),
        file(f"usr/bin/python{python}", b"x", 0o755),
        metadata("usr/lib/python3/dist-packages", "numpy", "1.26"),
        metadata("usr/lib/python3/dist-packages", "Old-Thing", "1.0"),
        file(
            "usr/lib/python3/dist-packages/legacy-2.0-py3.13.egg-info",
            b"Metadata-Version: 1.0\nName: legacy\nVersion: 2.0\n",
        ),
    )


# images
def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def descriptor(**changes: Any) -> dict[str, Any]:
    """Return the descriptor of a layer as a manifest has it; nothing has that digest."""
    return {"mediaType": f"{LAYER}+gzip", "digest": f"sha256:{DIGEST}", "size": 1, **changes}


def chunked(layer: bytes) -> bytes:
    """zstd as podman's ``zstd:chunked`` has it: a frame for each piece, tables in frames that readers skip."""
    table = struct.pack("<II", 0x184D2A50, 6) + b"tables"
    pieces = [zstandard.compress(layer[start : start + 3000]) for start in range(0, len(layer), 3000)]
    return table + b"".join(pieces) + table


@dataclass
class Layout:
    """An OCI layout in the making."""

    path: Path
    listed: list[dict[str, Any]] = field(default_factory=list)

    def blob(self, content: bytes, kind: str) -> dict[str, Any]:
        (self.path / "blobs/sha256").mkdir(parents=True, exist_ok=True)
        (self.path / "blobs/sha256" / sha256(content)).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{sha256(content)}", "size": len(content)}

    def image(
        self,
        layers: Sequence[bytes],
        *,
        arch: str = "amd64",
        env: Sequence[str] = (),
        compression: str = "gzip",
        created: str = "2025-10-01T00:00:00Z",
    ) -> dict[str, Any]:
        """Return the descriptor of the manifest of an image of `layers` (tars)."""
        parts = []
        for layer in layers:
            if compression == "zstd":
                parts.append(self.blob(zstandard.compress(layer), f"{LAYER}+zstd"))
            elif compression == "chunked":
                parts.append(self.blob(chunked(layer), f"{LAYER}+zstd"))
            elif compression == "none":
                parts.append(self.blob(layer, LAYER))
            else:
                parts.append(self.blob(gzip.compress(layer, mtime=0), f"{LAYER}+gzip"))
        value = {
            "architecture": arch,
            "os": "linux",
            "created": created,
            "config": {"Env": list(env)},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer)}" for layer in layers]},
        }
        config = self.blob(json.dumps(value).encode(), CONFIG)
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": parts}
        found = self.blob(json.dumps(manifest).encode(), MANIFEST)
        return {**found, "platform": {"architecture": arch, "os": "linux"}}

    def index(self, images: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        value = {"schemaVersion": 2, "mediaType": INDEX, "manifests": list(images)}
        return self.blob(json.dumps(value).encode(), INDEX)

    def add(self, descriptor: Mapping[str, Any], name: str = "") -> None:
        """List an image or an index under a name."""
        self.listed.append(
            {**descriptor, **({"annotations": {"org.opencontainers.image.ref.name": name}} if name else {})}
        )
        (self.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": self.listed}))
        (self.path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


# registries
@dataclass
class Server:
    """A running registry. `root` is its storage."""

    port: int
    root: Path
    login: str = ""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def blob(self, digest: str) -> Path:
        """Return the file that holds a blob."""
        return self.root / "docker/registry/v2/blobs/sha256" / digest[:2] / digest / "data"

    def push(self, source: str, name: str, *options: str) -> None:
        """Copy an image (skopeo's words for it) to ``name`` here."""
        login = [f"--dest-creds={self.login}"] if self.login else []
        skopeo("copy", "--all", *options, *login, "--dest-tls-verify=false", source, f"docker://{self.host}/{name}")


def skopeo(*arguments: str) -> str:
    command = [tool("skopeo"), "--insecure-policy", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def serve(
    place: Path, auth: str = "", login: str = "", *, tls: Path | None = None, storage: str = ""
) -> Iterator[Server]:
    """Debian's docker-registry with its storage in `place`. `auth`: lines of its configuration; `tls`: the folder of
    `make_certificates`, for https; `storage`: one more setting of its storage."""
    program = tool("docker-registry")
    place.mkdir(parents=True, exist_ok=True)
    config = place / "config.yml"
    keys = f", tls: {{certificate: {tls}/certificate.pem, key: {tls}/key.pem}}" if tls else ""
    more = f", {storage}" if storage else ""
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {place}/data}}{more}}}\n"
        f"http: {{addr: '127.0.0.1:0'{keys}}}\n{auth}"
    )
    process = subprocess.Popen(
        [program, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=place
    )
    assert process.stderr is not None
    try:
        output = b""
        while not (found := re.search(rb"listening on 127\.0\.0\.1:(\d+)", output)):
            ready = select.select([process.stderr], [], [], 60)[0]
            chunk = process.stderr.read1(1 << 16) if ready else b""  # type: ignore[attr-defined]
            assert chunk, f"docker-registry does not start: {output.decode(errors='replace')}"
            output += chunk
        # Its later output must not fill the pipe and stop it.
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        yield Server(int(found[1]), place / "data", login)
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()
    drain.wait()


def htpasswd(place: Path) -> str:
    """Return the configuration of basic authentication for USER."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "htpasswd").write_text(HTPASSWD)
    return f"auth: {{htpasswd: {{realm: test, path: {place}/htpasswd}}}}\n"
