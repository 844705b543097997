"""Cached layers of a registry: an interrupted pull resumes within a layer, and another form pulls nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from envbuild.core.errors import InputError, SpecError
from envbuild.core.store.gc import collect
from envbuild.oci.sources.cached_blob import open_part
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.pack.format import PackFormat
from tests.support import foreign_images as kit
from tests.support.cutting_proxy import Cutter, cutting
from tests.support.foreign_images import made, workspace
from tests.support.foreign_images import no_pauses as no_pauses  # a fixture of every test here
from tests.support.local_registry import Layout, Server, sha256
from tests.support.programs import importing

pytestmark = pytest.mark.registry
NAME = "docker://some/app:1"


@pytest.fixture
def layers(layout: Layout, registry: Server) -> list[str]:
    """Push the image to the registry; return the sha256 of its layers' blobs. The second one has 3 MB."""
    layout.add(kit.image(layout, kit.layers()))
    registry.push(f"oci:{layout.path}", "some/app:1")
    blobs = layout.path / "blobs/sha256"
    return [path.name for path in sorted(blobs.iterdir()) if path.read_bytes()[:2] == b"\x1f\x8b"]


@pytest.fixture
def large(layers: list[str], layout: Layout) -> str:
    return max(layers, key=lambda name: (layout.path / "blobs/sha256" / name).stat().st_size)


def cached_layers(at: Workspace, layers: list[str]) -> list[str]:
    """Return those of `layers` that the store has, with the content that they are named by."""
    found = [name for name in layers if at.store.has_blob(name)]
    assert all(sha256(at.store.blob(name).read_bytes()) == name for name in found)
    return found


def partial_file(at: Workspace, name: str) -> Path:
    return at.store.part(name)


def layer_requests(cutter: Cutter, layers: list[str]) -> list[str]:
    return [header for path, header in cutter.asked if path.rpartition(":")[2] in layers]


def test_another_form_pulls_nothing(layers: list[str], registry: Server, tmp_path: Path) -> None:
    with cutting(registry.host) as cutter:
        at = workspace(tmp_path / "store", docker=cutter.url)
        want = made(NAME, workspace(tmp_path / "plain", docker=registry.url)).artifact.sha256
        assert made(NAME, at, keep_layers=True).artifact.sha256 == want
        assert cached_layers(at, layers) == layers and not any((at.store.root / "partial").iterdir())
        assert len(layer_requests(cutter, layers)) == 3
        for options in ({"form": PackFormat("lz4", 0)}, {"cache": False, "out": tmp_path / "straight.sqsh"}):
            made(NAME, at, **options)  # type: ignore[arg-type]
        assert len(layer_requests(cutter, layers)) == 3
        assert sha256((tmp_path / "straight.sqsh").read_bytes()) == want
    collect(at.store, at.reporter, dry_run=False, everything=True)
    assert not cached_layers(at, layers)


def test_without_the_option_nothing_is_cached(layers: list[str], registry: Server, tmp_path: Path) -> None:
    at = workspace(tmp_path / "store", docker=registry.url)
    made(NAME, at)
    assert not cached_layers(at, layers) and not any((at.store.root / "partial").iterdir())


def test_a_pull_resumes_within_a_layer(layers: list[str], large: str, registry: Server, tmp_path: Path) -> None:
    want = made(NAME, workspace(tmp_path / "plain", docker=registry.url)).artifact.sha256
    with cutting(registry.host) as cutter:
        at = workspace(tmp_path / "store", docker=cutter.url)
        cutter.cuts = [2_000_000, *[0] * 50]
        with pytest.raises(InputError, match="5 attempts"):
            made(NAME, at, keep_layers=True)
        assert partial_file(at, large).stat().st_size == 2_000_000
        cutter.cuts, cutter.asked = [], []
        assert made(NAME, at, keep_layers=True).artifact.sha256 == want
        assert layer_requests(cutter, layers) == ["bytes=2000000-"]
        assert cached_layers(at, layers) == layers


def test_a_complete_partial_file_is_used(
    layers: list[str], large: str, layout: Layout, registry: Server, tmp_path: Path
) -> None:
    """A run was killed between the last byte and the renaming."""
    at = workspace(tmp_path / "store", docker=registry.url)
    partial_file(at, large).parent.mkdir(exist_ok=True)
    partial_file(at, large).write_bytes((layout.path / "blobs/sha256" / large).read_bytes())
    with cutting(registry.host) as cutter:
        at.site.mirrors["oci:docker.io/"] = (cutter.url,)  # type: ignore[index]
        made(NAME, at, keep_layers=True)
        assert len(layer_requests(cutter, layers)) == 2 and cached_layers(at, layers) == layers


@pytest.mark.parametrize("size", [1_000_000, 9_000_000])
def test_a_partial_file_of_other_content(
    size: int, layers: list[str], large: str, registry: Server, tmp_path: Path
) -> None:
    """Of a disk that lost something, or of a hostile neighbour: it is thrown away, and all of the layer pulled."""
    at = workspace(tmp_path / "store", docker=registry.url)
    partial_file(at, large).parent.mkdir(exist_ok=True)
    partial_file(at, large).write_bytes(b"x" * size)
    want = made(NAME, workspace(tmp_path / "plain", docker=registry.url)).artifact.sha256
    assert made(NAME, at, keep_layers=True).artifact.sha256 == want
    assert cached_layers(at, layers) == layers and not partial_file(at, large).exists()


def test_a_damaged_cached_layer_is_fetched_again(
    layers: list[str], large: str, registry: Server, tmp_path: Path
) -> None:
    at = workspace(tmp_path / "store", docker=registry.url)
    want = made(NAME, at, keep_layers=True).artifact.sha256
    at.store.blob(large).write_bytes(b"damaged")
    again = made(NAME, at, tmp_path / "again.sqsh", cache=False, keep_layers=True)
    assert again.artifact.sha256 == want and cached_layers(at, layers) == layers


def test_wrong_content_is_not_cached(layers: list[str], large: str, registry: Server, tmp_path: Path) -> None:
    with cutting(registry.host) as cutter:
        cutter.wrong = True
        at = workspace(tmp_path / "store", docker=cutter.url)
        with pytest.raises(InputError, match="layer 2 of 3"):
            made(NAME, at, keep_layers=True)
        assert large not in cached_layers(at, layers) and not partial_file(at, large).exists()


def test_a_layer_that_another_process_caches(layers: list[str], large: str, registry: Server, tmp_path: Path) -> None:
    """Both read it; one writes it down."""
    at = workspace(tmp_path / "store", docker=registry.url)
    file = open_part(at.store, large)
    assert file is not None and open_part(at.store, large) is None
    with file:
        made(NAME, at, keep_layers=True)
    assert large not in cached_layers(at, layers)


def test_a_killed_pull(layers: list[str], large: str, registry: Server, tmp_path: Path) -> None:
    """SIGKILL: received data is preserved, and not fetched again."""
    program = """
import sys, time
from pathlib import Path
from tests.support.foreign_images import made, workspace
from envbuild.oci.sources import cached_blob
read = cached_blob.CachedBlob.read
def slowly(self, size=-1):
    if self.at > 1_500_000:
        time.sleep(60)
    return read(self, size)
cached_blob.CachedBlob.read = slowly
made("docker://some/app:1", workspace(Path(sys.argv[1]), docker=sys.argv[2]), keep_layers=True)
"""
    store = tmp_path / "store"
    process = subprocess.Popen([sys.executable, "-c", program, store, registry.url], env=importing())
    at = workspace(store, docker=registry.url)
    until = time.monotonic() + 60
    while not (partial_file(at, large).is_file() and partial_file(at, large).stat().st_size > 1_500_000):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    come = partial_file(at, large).stat().st_size
    with cutting(registry.host) as cutter:
        at.site.mirrors["oci:docker.io/"] = (cutter.url,)  # type: ignore[index]
        made(NAME, at, keep_layers=True)
        assert f"bytes={come}-" in layer_requests(cutter, layers)
    assert cached_layers(at, layers) == layers


def test_only_registries_are_pulled_from(layout: Layout, tmp_path: Path) -> None:
    layout.add(kit.image(layout, kit.layers()))
    with pytest.raises(SpecError, match="--keep-layers has no meaning for oci:"):
        made(f"oci:{layout.path}", workspace(tmp_path / "store"), keep_layers=True)
