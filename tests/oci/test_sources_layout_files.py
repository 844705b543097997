"""Files of a layout in a folder: regular ones below it, and nothing else."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.oci.sources.archive import open_archive
from envbuild.oci.sources.oci_layout import LayoutFolder, open_layout
from envbuild.oci.sources.platform import Platform
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit

NAME = "blobs/sha256/" + "a" * 64


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """Return a layout whose blob is missing."""
    folder = tmp_path / "layout"
    (folder / NAME).parent.mkdir(parents=True)
    (folder / "index.json").write_text('{"schemaVersion": 2, "manifests": []}')
    return folder


def refused(folder: Path, name: str = NAME) -> str:
    with pytest.raises(InputError) as caught, ends_within(60):
        LayoutFolder(folder).open(name)
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "folder"])
def test_a_blob_that_is_not_a_regular_file_is_refused_at_once(kind: str, layout: Path) -> None:
    path = layout / NAME
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            folder = os.open(path.parent, os.O_RDONLY)
            listener.bind(f"/proc/self/fd/{folder}/{path.name}"[:107])
            os.close(folder)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    assert ("outside" if kind == "device" else "not a regular file") in refused(layout)


def test_a_blob_that_is_a_link_out_of_the_layout_is_refused(layout: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (layout / NAME).symlink_to("../../../secret")
    assert "outside" in refused(layout)
    (layout / NAME).unlink()
    (layout / "blobs/sha256").rmdir()
    (layout / "blobs/sha256").symlink_to(tmp_path)
    (tmp_path / ("a" * 64)).write_text("secret")
    assert "outside" in refused(layout)


def test_links_within_a_layout_are_followed(layout: Path) -> None:
    (layout / "shared").write_bytes(b"content")
    (layout / NAME).symlink_to("../../shared")
    assert LayoutFolder(layout).read(NAME) == b"content"


def test_a_circle_of_links_is_refused(layout: Path) -> None:
    (layout / NAME).symlink_to(layout / NAME)
    assert "links" in refused(layout)


def test_an_index_or_an_archive_that_is_a_fifo_is_refused(layout: Path, tmp_path: Path) -> None:
    (layout / "index.json").unlink()
    os.mkfifo(layout / "index.json")
    os.mkfifo(tmp_path / "image.tar")
    platform = Platform.of("amd64")
    with ends_within(60), pytest.raises(InputError), open_layout(layout, "", platform):
        pass
    archive = tmp_path / "image.tar"
    with ends_within(60), pytest.raises(InputError, match="regular"), open_archive(archive, "", platform):
        pass
