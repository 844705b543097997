"""A real Debian image, made by mmdebstrap, pushed by skopeo: locked from the registry and built on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.build.engines.base import BuildOptions
from envbuild.build.engines.embedded.engine import Embedded
from envbuild.build.plan.units import Blob, Input, Plan, Unit
from envbuild.build.steps import Step
from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
from envbuild.core.userns.removal import remove_tree
from envbuild.net import host_config
from envbuild.oci.config import ImageConfig
from tests.support.engine_fixtures import open_working_store
from tests.support.local_registry import Layout, Lock, Server

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can read the trees of layers"),
]
CACHED_IMAGE = "trixie-image.tar"


@pytest.fixture(scope="module")
def debian() -> Iterator[bytes]:
    """Yield the tar of a small Debian 13 with Python. ENVBUILD_TEST_STORE names a folder that keeps it."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed")
    places = host_config.debian_archives().get("debian:", ())
    if not places:
        pytest.skip("the host's apt knows no Debian archive")
    with tempfile.TemporaryDirectory() as work:
        cached = Path(os.environ.get("ENVBUILD_TEST_STORE", work)) / CACHED_IMAGE
        if not cached.is_file():
            cached.parent.mkdir(parents=True, exist_ok=True)
            new = cached.with_suffix(".new.tar")
            command = ["mmdebstrap", "--variant=minbase", "--include=python3", "trixie", str(new), places[0]]
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
            )
            if done.returncode:
                pytest.skip(f"mmdebstrap cannot make a Debian here: {done.stderr[-300:]}")
            new.rename(cached)
        yield cached.read_bytes()


@pytest.fixture
def building() -> Iterator[Store]:
    """Yield a store in which the embedded engine works."""
    path = Path(tempfile.mkdtemp(prefix="envbuild-test-"))
    yield open_working_store(path)
    remove_tree(path)


def test_a_real_image(
    debian: bytes, layout: Layout, registry: Server, lock: Lock, store: Store, building: Store
) -> None:
    layout.add(layout.image([debian], env=["PATH=/usr/bin:/bin"]))
    registry.push(f"oci:{layout.path}", "library/debian:13")
    reference = "docker.io/debian:13"
    found = lock(reference, registry.url, promised=(("python", "/usr/bin/python3*"), ("libc", "/lib/*/libc.so.6")))
    assert found.interpreter == "/usr/bin/python3.13"
    assert found.image.distribution == "debian:13" and found.image.env == {"PATH": "/usr/bin:/bin"}
    packages = set(re.findall(r"^Package: (\S+)$", found.status, re.MULTILINE))
    assert {"apt", "dpkg", "libc6", "python3", "base-files"} <= packages

    blobs = []
    for number, (sha256, size, _) in enumerate(found.image.layers):
        shutil.copy(store.blob(sha256), building.blob(sha256))
        blobs.append(Blob(f"{number:03}", sha256, size))
    steps = (Step("dpkg --audit && apt-get --version > /etc/apt-version && python3 -c 'import ssl, json'"),)
    base = Unit(
        "base",
        reference,
        steps,
        inputs=(Input("layers", "files", tuple(blobs)),),
        layers=tuple(blob.name for blob in blobs),
        epoch=found.created,
    )
    plan = Plan("test", (base,), ImageConfig(), found.created)
    first, second = (
        Embedded(packs=()).build(plan, building, SilentReporter(), BuildOptions(rebuild=True)).layers[0]
        for _ in range(2)
    )
    assert first == second
    tree = building.layer_tree(first.diff_id)
    assert (tree / "etc/apt-version").read_text().startswith("apt ")
    nodes = [path for path in (tree / "dev").iterdir() if path.lstat().st_rdev]
    assert not nodes and (tree / "dev/fd").is_symlink()
    assert (tree / "bin").is_symlink() and first.files > 3000
