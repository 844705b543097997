"""A base image in a file: compared with a lock by its documents, and copied into a store that lacks it."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
from envbuild.lock import base_file
from envbuild.lock.base_file import is_other_file, provide_base
from envbuild.lock.base_image.lock_base import lock_base
from envbuild.lock.base_image.own_images import NO_IMAGES
from envbuild.lock.inputs import image_blobs
from envbuild.lock.model import BaseImage, Lock
from envbuild.net.download import Transfer
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support import local_registry as kit
from tests.support.local_registry import Layout
from tests.support.saved_image import write_saved_image

pytestmark = pytest.mark.unit
MORE = kit.tar(kit.file("srv/new", b"x"))


REPORTED = SilentReporter()


def workspace(folder: Path) -> Any:
    store = Store.open(folder)
    return SimpleNamespace(store=store, site=Site(store.root, use_host=False), reporter=REPORTED)


def locked(base: str, folder: Path) -> BaseImage:
    at = workspace(folder / "store")
    transport = Transport(at.site.network())
    found = lock_base(
        base, "amd64", at.site, transport, Transfer(transport, at.store), at.store, SilentReporter(), previous=None,
        distribution="debian:13", python="3.13", folder=folder,
    )  # fmt: skip
    return found.image


def is_other(base: str, folder: Path, locked_as: BaseImage) -> tuple[bool | None, str]:
    at = workspace(folder / "new")
    return is_other_file(base, folder, "amd64", locked_as, at.site, at.store, at.reporter)


def provide(image: BaseImage, folder: Path, store: str) -> Store:
    """Provide what a store lacks of a locked base; return the store."""
    at, lock = workspace(folder / store), Lock.__new__(Lock)
    object.__setattr__(lock, "base_image", image)
    object.__setattr__(lock, "arch", "amd64")
    object.__setattr__(lock, "image", "demo")
    provide_base(lock, image_blobs(image), folder, NO_IMAGES, at.site, at.store, at.reporter)
    return Store(at.store.root)


def write_layout(folder: Path, *more: bytes, arch: str = "amd64") -> Layout:
    layout = Layout(folder)
    layout.add(layout.image([kit.system(), *more], arch=arch), "app:1")
    return layout


def test_an_archive_is_compared_by_its_configuration_and_the_sizes_of_its_layers(tmp_path: Path) -> None:
    write_saved_image(tmp_path / "app.tar", [kit.system()])
    image = locked("./app.tar", tmp_path)
    assert is_other("./app.tar", tmp_path, image) == (False, "")
    write_saved_image(tmp_path / "app.tar", [kit.system()], [gzip.compress(kit.system())])
    assert is_other("./app.tar", tmp_path, image) == (True, "")  # the lock has the layer as it was stored
    write_saved_image(tmp_path / "app.tar", [kit.system(), MORE])
    assert is_other("./app.tar", tmp_path, image) == (True, "")
    write_saved_image(tmp_path / "app.tar", [kit.system()], arch="arm64")
    assert is_other("./app.tar", tmp_path, image) == (True, "")
    (tmp_path / "app.tar").unlink()
    found, why = is_other("./app.tar", tmp_path, image)
    assert found is None and "there is no file or folder" in why


def test_a_layout_is_compared_by_its_manifest(tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout")
    image = locked("oci:layout", tmp_path)
    for digest, _, _ in image.layers:
        (layout.path / "blobs/sha256" / digest).write_bytes(b"is not read")
    assert is_other("oci:layout", tmp_path, image) == (False, "")
    (layout.path / "index.json").unlink()
    write_layout(tmp_path / "layout", MORE)
    assert is_other("oci:layout", tmp_path, image) == (True, "")


def test_a_store_without_the_base_gets_it_from_its_file(tmp_path: Path) -> None:
    write_layout(tmp_path / "layout")
    image = locked("oci:layout", tmp_path)
    blobs = [blob.sha256 for blob in image_blobs(image)]
    assert all(map(provide(image, tmp_path, "new").has_blob, blobs))
    (tmp_path / "layout/index.json").unlink()
    write_layout(tmp_path / "layout", MORE)
    assert not any(map(provide(image, tmp_path, "other").has_blob, blobs))  # another image: nothing is copied
    assert "it is another image than that of the lock" in REPORTED.lines[-1]


def test_a_place_that_this_user_cannot_use_is_left_to_mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = write_layout(tmp_path / "layout")
    image = locked("oci:layout", tmp_path)
    found, why = is_other("docker-archive:~no-such-user/app.tar", tmp_path, image)
    assert found is None and "no-such-user" in why

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(layout.path))

    monkeypatch.setattr(base_file, "open_source", refuse)
    found, why = is_other("oci:layout", tmp_path, image)
    assert found is None and "Permission denied" in why


def test_a_damaged_file_is_reported_and_left_to_mirrors(tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout")
    image = locked("oci:layout", tmp_path)
    (layer, _, _) = image.layers[0]
    content = (layout.path / "blobs/sha256" / layer).read_bytes()
    (layout.path / "blobs/sha256" / layer).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    before = len(REPORTED.lines)  # of the tests before this one
    assert not provide(image, tmp_path, "new").has_blob(layer)
    assert any("the base oci:layout is not copied" in line for line in REPORTED.lines[before:])
