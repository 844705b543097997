"""A base image in a file: compared with a lock by its documents, and copied into a store that lacks it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
from envbuild.lock import base_file
from envbuild.lock.base_file import is_other_file, provide_base
from envbuild.lock.base_image.lock_base import lock_base
from envbuild.lock.model import BaseImage
from envbuild.net.download import Transfer
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support import local_registry as kit
from tests.support.local_registry import Layout
from tests.support.saved_image import write_saved_image

pytestmark = pytest.mark.unit
MORE = kit.tar(kit.file("srv/new", b"x"))


def workspace(folder: Path) -> Any:
    store = Store.open(folder)
    return SimpleNamespace(store=store, site=Site(store.root, use_host=False), reporter=SilentReporter())


def locked(base: str, folder: Path) -> BaseImage:
    at = workspace(folder / "store")
    transport = Transport(at.site.network())
    found = lock_base(
        base, "amd64", at.site, transport, Transfer(transport, at.store), at.store, SilentReporter(), previous=None,
        distribution="debian:13", python="3.13", folder=folder,
    )  # fmt: skip
    return found.image


@pytest.fixture
def request_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the request of an image on a base, which is the resolution here."""
    monkeypatch.setattr(base_file, "lock_request", lambda resolution: resolution)
    return lambda base: SimpleNamespace(base=base, folder=str(tmp_path), arch="amd64")


def write_layout(folder: Path, *more: bytes, arch: str = "amd64") -> Layout:
    layout = Layout(folder)
    layout.add(layout.image([kit.system(), *more], arch=arch), "app:1")
    return layout


def test_an_archive_is_compared_by_its_configuration(tmp_path: Path, request_of: Any) -> None:
    write_saved_image(tmp_path / "app.tar", [kit.system()])
    lock: Any = SimpleNamespace(base_image=locked("./app.tar", tmp_path))
    at, request = workspace(tmp_path / "new"), request_of("./app.tar")
    assert is_other_file(request, lock, at) == (False, "")
    write_saved_image(tmp_path / "app.tar", [kit.system(), MORE])
    assert is_other_file(request, lock, at) == (True, "")
    write_saved_image(tmp_path / "app.tar", [kit.system()], arch="arm64")
    assert is_other_file(request, lock, at) == (True, "")
    (tmp_path / "app.tar").unlink()
    found, why = is_other_file(request, lock, at)
    assert found is None and "there is no file or folder" in why


def test_a_layout_is_compared_by_its_manifest(tmp_path: Path, request_of: Any) -> None:
    layout = write_layout(tmp_path / "layout")
    lock: Any = SimpleNamespace(base_image=locked("oci:layout", tmp_path))
    at, request = workspace(tmp_path / "new"), request_of("oci:layout")
    for digest, _, _ in lock.base_image.layers:
        (layout.path / "blobs/sha256" / digest).write_bytes(b"is not read")
    assert is_other_file(request, lock, at) == (False, "")
    (layout.path / "index.json").unlink()
    write_layout(tmp_path / "layout", MORE)
    assert is_other_file(request, lock, at) == (True, "")


def test_a_store_without_the_base_gets_it_from_its_file(tmp_path: Path, request_of: Any) -> None:
    write_layout(tmp_path / "layout")
    lock: Any = SimpleNamespace(base_image=locked("oci:layout", tmp_path))
    at, request = workspace(tmp_path / "new"), request_of("oci:layout")
    blobs = [*(digest for digest, _, _ in lock.base_image.layers), lock.base_image.config]
    provide_base(request, lock, at)
    assert all(map(at.store.has_blob, blobs))
    (tmp_path / "layout/index.json").unlink()
    write_layout(tmp_path / "layout", MORE)
    other = workspace(tmp_path / "other")
    provide_base(request, lock, other)  # another image: nothing is copied
    assert not any(map(other.store.has_blob, blobs))
