"""Registries that have too much to do, that answer with more than a manifest, or with an index in an index."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.net.limits import LIMITS
from envbuild.oci.sources.open import open_source
from tests.support import foreign_images as kit
from tests.support.foreign_images import made, workspace
from tests.support.http_server import Handler, serving
from tests.support.local_registry import MANIFEST, Layout

pytestmark = pytest.mark.registry


@dataclass
class Busy:
    """`refusals`: (status, Retry-After) of the first answers to each request; `pieces` of 1 MiB of blanks before every
    manifest. `times`: when each path was requested; `sent`: bytes that were taken of manifests."""

    refusals: list[tuple[int, str]] = field(default_factory=list)
    pieces: int = 0
    url: str = ""
    times: dict[str, list[float]] = field(default_factory=dict)
    sent: int = 0


@contextmanager
def busy(layout: Layout) -> Iterator[Busy]:
    """Yield a registry of the one image of `layout`."""
    found = Busy()

    class Registry(Handler):
        def do_GET(self) -> None:
            times = found.times.setdefault(self.path, [])
            times.append(time.monotonic())
            if len(times) <= len(found.refusals):
                status, after = found.refusals[len(times) - 1]
                self.send_response(status)
                if after:
                    self.send_header("Retry-After", after)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            index = json.loads((layout.path / "index.json").read_bytes())["manifests"][0]
            wanted = self.path.rpartition("/")[2]
            digest = index["digest"] if wanted == "1" else wanted
            body = (layout.path / "blobs/sha256" / digest.removeprefix("sha256:")).read_bytes()
            manifest = "/manifests/" in self.path
            self.send_response(200)
            self.send_header("Content-Type", MANIFEST if manifest else "application/octet-stream")
            self.send_header("Content-Length", str(len(body) + manifest * (found.pieces << 20)))
            self.end_headers()
            try:
                for _ in range(found.pieces if manifest else 0):
                    self.wfile.write(b" " * (1 << 20))
                    found.sent += 1 << 20
                self.wfile.write(body)
            except OSError:  # the client reads no more
                self.close_connection = True

    with serving(Registry) as found.url:
        yield found


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Busy]:
    layout = Layout(tmp_path / "layout")
    layout.add(kit.image(layout, kit.layers()), "1")
    with busy(layout) as found:
        yield found


def test_retry_after_of_a_registry_is_obeyed(registry: Busy, tmp_path: Path) -> None:
    registry.refusals = [(429, "1"), (503, "")]
    made("docker://some/app:1", workspace(tmp_path / "store", docker=registry.url))
    assert len(registry.times) == 1 + 1 + 3  # the manifest, the configuration, the layers
    for times in registry.times.values():
        first, second, third = times
        assert second - first >= 1 and third - second >= 0.5


def test_the_hint_after_too_many_requests_is_a_login(registry: Busy, tmp_path: Path) -> None:
    registry.refusals = [(429, "0")] * 9
    with pytest.raises(InputError, match="HTTP 429") as caught:
        made("docker://some/app:1", workspace(tmp_path / "store", docker=registry.url))
    assert "docker login docker.io" in caught.value.hint


def test_an_endless_manifest_is_refused(registry: Busy, tmp_path: Path) -> None:
    registry.pieces = 512  # more than all buffers between the two hold
    with pytest.raises(InputError, match=f"more than {LIMITS.manifest} bytes"):
        made("docker://some/app:1", workspace(tmp_path / "store", docker=registry.url))
    assert registry.sent < 256 << 20


def test_an_index_in_an_index(tmp_path: Path) -> None:
    own = Layout(tmp_path / "mirror/some/app")
    image = kit.image(own, kit.layers())
    own.add(own.index([own.index([image])]), "1")
    at = workspace(tmp_path / "store", docker=str(tmp_path / "mirror"))
    with open_source("docker://some/app:1", at.site, at.store, "linux/amd64") as found:
        assert found.manifest == image["digest"]
