"""A registry on this machine, and `enroot import`, which reads from registries only.

The image is pushed as Docker's schema 2: enroot's first request names no format, and docker-registry answers it for no
other. Only the reader is measured, not the registry."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import layouts
from measure import Cost, measure


@dataclass(frozen=True)
class Registry:
    host: str
    place: Path = Path()

    def push(self, layout: Path, name: str) -> str:
        """Copy a layout there; return its name for enroot and envbuild."""
        source, place = f"oci:{layout}:{layouts.tag(layout)}", f"{self.host}/bench/{name}:1"
        command = ["skopeo", "copy", "-q", "--insecure-policy", "--dest-tls-verify=false", "--format", "v2s2"]
        subprocess.run([*command, source, f"docker://{place}"], check=True)
        return f"docker://{self.host}#bench/{name}:1"


@contextmanager
def registry(place: Path) -> Iterator[Registry]:
    """Run docker-registry on a free port, with its storage in `place`."""
    place.mkdir(parents=True)
    config, log = place / "config.yml", place / "log"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {place}/data}}}}\nhttp: {{addr: '127.0.0.1:0'}}\n"
    )
    with log.open("wb") as file:
        process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=file, stderr=file)
    try:
        until = time.monotonic() + 60
        while not (found := re.search(r"listening on (127\.0\.0\.1:\d+)", log.read_text())):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"docker-registry does not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield Registry(found[1], place)
    finally:
        process.terminate()
        process.wait()


def enroot(reference: str, work: Path, options: Sequence[str]) -> tuple[Cost, float]:
    """Return the cost of `enroot import` with these options for mksquashfs, and MB of its output. Its layer cache is
    `work`; the disk is that of cache, temporary files and output together."""
    folders = {f"ENROOT_{name}_PATH": work / name.lower() for name in ("CACHE", "TEMP", "DATA", "RUNTIME", "CONFIG")}
    for path in folders.values():
        path.mkdir(parents=True, exist_ok=True)
    out = work / "image.sqsh"
    env = {name: str(path) for name, path in folders.items()}
    env |= {"ENROOT_ALLOW_HTTP": "y", "ENROOT_SQUASH_OPTIONS": " ".join(options)}
    cost = measure(["enroot", "import", "-o", str(out), reference], env, watch=[work])
    written = out.stat().st_size / 1e6
    out.unlink()
    return cost, written
