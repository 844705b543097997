"""Publishing into a layout that several images share."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from envbuild.core.errors import PublishError
from envbuild.publish.folder import publish_to_folder
from envbuild.publish.layout_parts import LayoutParts
from tests.support.local_registry import Layout, file, skopeo, tar

pytestmark = pytest.mark.clients


def parts(folder: Path, *contents: bytes, arch: str = "amd64") -> LayoutParts:
    layout = Layout(folder)
    layout.add(layout.image([tar(file("f", content)) for content in contents], arch=arch), "x")
    return LayoutParts.read(folder)


def test_images_share_blobs_and_have_tags_of_their_own(tmp_path: Path) -> None:
    one, two = parts(tmp_path / "1", b"base", b"one"), parts(tmp_path / "2", b"base", b"two")
    there = tmp_path / "shared"
    assert publish_to_folder(one, there, "one", "amd64", move=False)[0] == 4
    assert publish_to_folder(two, there, "two", "amd64", move=False)[0] == 3
    assert publish_to_folder(two, there, "two", "amd64", move=False) == (0, 0)
    for tag, found in (("one", one), ("two", two)):
        assert json.loads(skopeo("inspect", f"oci:{there}:{tag}"))["Digest"] == found.digest


def test_a_tag_has_an_image_of_each_architecture(tmp_path: Path) -> None:
    for arch in ("amd64", "arm64"):
        publish_to_folder(parts(tmp_path / arch, arch.encode(), arch=arch), tmp_path / "out", "app", arch, move=False)
    listed = json.loads((tmp_path / "out/index.json").read_bytes())["manifests"]
    assert sorted(item["platform"]["architecture"] for item in listed) == ["amd64", "arm64"]


def test_a_tag_moves_only_on_request(tmp_path: Path) -> None:
    one, two = parts(tmp_path / "1", b"one"), parts(tmp_path / "2", b"two")
    publish_to_folder(one, tmp_path / "out", "app", "amd64", move=False)
    before = (tmp_path / "out/index.json").read_bytes()
    with pytest.raises(PublishError) as caught:
        publish_to_folder(two, tmp_path / "out", "app", "amd64", move=False)
    assert "--move" in caught.value.hint and (tmp_path / "out/index.json").read_bytes() == before
    publish_to_folder(two, tmp_path / "out", "app", "amd64", move=True)
    assert json.loads(skopeo("inspect", f"oci:{tmp_path}/out:app"))["Digest"] == two.digest


def test_a_damaged_blob_is_written_again(tmp_path: Path) -> None:
    one = parts(tmp_path / "1", b"one")
    publish_to_folder(one, tmp_path / "out", "app", "amd64", move=False)
    blob = tmp_path / "out/blobs/sha256" / one.blobs[1].digest
    blob.write_bytes(bytes(blob.stat().st_size))
    assert publish_to_folder(one, tmp_path / "out", "app", "amd64", move=False)[0] == 1
    assert blob.read_bytes() == one.path(one.blobs[1]).read_bytes()


def test_a_folder_of_something_else_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/notes").write_text("mine")
    with pytest.raises(PublishError):
        publish_to_folder(parts(tmp_path / "1", b"one"), tmp_path / "home", "app", "amd64", move=False)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["notes"]


def test_links_of_other_users_are_not_followed(tmp_path: Path) -> None:
    """In the place of a folder, of a blob and of the index; a FIFO does not stop the command."""
    one, victim, there = parts(tmp_path / "1", b"one"), tmp_path / "victim", tmp_path / "out"
    victim.mkdir()
    (victim / "sha256").mkdir()
    there.mkdir()
    (there / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (there / "blobs").symlink_to(victim)
    with pytest.raises(PublishError) as caught:
        publish_to_folder(one, there, "app", "amd64", move=False)
    assert caught.value.exit_code == 8 and not list((victim / "sha256").iterdir())
    (there / "blobs").unlink()
    (there / "blobs/sha256").mkdir(parents=True)
    (there / "blobs/sha256" / one.blobs[1].digest).symlink_to(victim / "file")
    publish_to_folder(one, there, "app", "amd64", move=False)
    assert not (victim / "file").exists() and not (there / "blobs/sha256" / one.blobs[1].digest).is_symlink()
    (there / "index.json").unlink()
    os.mkfifo(there / "index.json")
    with pytest.raises(PublishError, match="malformed"):
        publish_to_folder(one, there, "app", "amd64", move=False)


def test_a_malformed_index_is_reported(tmp_path: Path) -> None:
    one = parts(tmp_path / "1", b"one")
    publish_to_folder(one, tmp_path / "out", "app", "amd64", move=False)
    (tmp_path / "out/index.json").write_text("[]")
    with pytest.raises(PublishError, match="malformed"):
        publish_to_folder(one, tmp_path / "out", "app", "amd64", move=False)
