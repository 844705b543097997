"""Publishing into a layout that several images share."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from envbuild.core.errors import PublishError
from envbuild.core.store import lock_holder
from envbuild.publish import folder as publish_folder
from envbuild.publish.folder import publish_to_folder
from envbuild.publish.layout_parts import LayoutParts
from tests.support.local_registry import Layout, file, skopeo, tar

pytestmark = pytest.mark.clients


def parts(folder: Path, *contents: bytes, arch: str = "amd64") -> LayoutParts:
    layout = Layout(folder)
    layout.add(layout.image([tar(file("f", content)) for content in contents], arch=arch), "x")
    return LayoutParts.read(folder)


def publish(one: LayoutParts, folder: Path, tag: str, arch: str, *, move: bool) -> tuple[int, int]:
    return publish_to_folder(one, folder, tag, arch, move=move, report=pytest.fail)


def test_images_share_blobs_and_have_tags_of_their_own(tmp_path: Path) -> None:
    one, two = parts(tmp_path / "1", b"base", b"one"), parts(tmp_path / "2", b"base", b"two")
    there = tmp_path / "shared"
    assert publish(one, there, "one", "amd64", move=False)[0] == 4
    assert publish(two, there, "two", "amd64", move=False)[0] == 3
    assert publish(two, there, "two", "amd64", move=False) == (0, 0)
    for tag, found in (("one", one), ("two", two)):
        assert json.loads(skopeo("inspect", f"oci:{there}:{tag}"))["Digest"] == found.digest


def test_a_tag_has_an_image_of_each_architecture(tmp_path: Path) -> None:
    for arch in ("amd64", "arm64"):
        publish(parts(tmp_path / arch, arch.encode(), arch=arch), tmp_path / "out", "app", arch, move=False)
    listed = json.loads((tmp_path / "out/index.json").read_bytes())["manifests"]
    assert sorted(item["platform"]["architecture"] for item in listed) == ["amd64", "arm64"]


def test_a_tag_moves_only_on_request(tmp_path: Path) -> None:
    one, two = parts(tmp_path / "1", b"one"), parts(tmp_path / "2", b"two")
    publish(one, tmp_path / "out", "app", "amd64", move=False)
    before = (tmp_path / "out/index.json").read_bytes()
    with pytest.raises(PublishError) as caught:
        publish(two, tmp_path / "out", "app", "amd64", move=False)
    assert "--move" in caught.value.hint and (tmp_path / "out/index.json").read_bytes() == before
    publish(two, tmp_path / "out", "app", "amd64", move=True)
    assert json.loads(skopeo("inspect", f"oci:{tmp_path}/out:app"))["Digest"] == two.digest


def test_a_damaged_blob_is_written_again(tmp_path: Path) -> None:
    one = parts(tmp_path / "1", b"one")
    publish(one, tmp_path / "out", "app", "amd64", move=False)
    blob = tmp_path / "out/blobs/sha256" / one.blobs[1].digest
    blob.write_bytes(bytes(blob.stat().st_size))
    assert publish(one, tmp_path / "out", "app", "amd64", move=False)[0] == 1
    assert blob.read_bytes() == one.path(one.blobs[1]).read_bytes()


def test_a_folder_of_something_else_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/notes").write_text("mine")
    with pytest.raises(PublishError):
        publish(parts(tmp_path / "1", b"one"), tmp_path / "home", "app", "amd64", move=False)
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
        publish(one, there, "app", "amd64", move=False)
    assert caught.value.exit_code == 8 and not list((victim / "sha256").iterdir())
    (there / "blobs").unlink()
    (there / "blobs/sha256").mkdir(parents=True)
    (there / "blobs/sha256" / one.blobs[1].digest).symlink_to(victim / "file")
    publish(one, there, "app", "amd64", move=False)
    assert not (victim / "file").exists() and not (there / "blobs/sha256" / one.blobs[1].digest).is_symlink()
    (there / "index.json").unlink()
    os.mkfifo(there / "index.json")
    with pytest.raises(PublishError, match="malformed"):
        publish(one, there, "app", "amd64", move=False)


GOOD = "sha256:" + "a" * 64
TAGGED = f'"digest": "{GOOD}", "annotations": {{"org.opencontainers.image.ref.name": "app"}}'


@pytest.mark.parametrize(
    "index",
    [
        "[]",
        "null",
        '{"manifests": null}',
        '{"manifests": {"a": 1}}',
        '{"manifests": ["a"]}',
        '{"manifests": [{}]}',
        f'{{"manifests": [{{"digest": "{GOOD}", "annotations": "x"}}]}}',
        f'{{"manifests": [{{{TAGGED}, "platform": "y"}}]}}',
        f'{{"manifests": [{{{TAGGED}, "platform": {{"architecture": ["y"]}}}}]}}',
        f'{{"manifests": [{{"digest": "{GOOD}", "annotations": {{"k": "\\ud800"}}}}]}}',
        f'{{"manifests": [{{"digest": "{GOOD}", "size": NaN}}]}}',
        f'{{"manifests": [{{"digest": "{GOOD}", "size": 1e999}}]}}',
        TAGGED.replace(GOOD, "x\\nhint: sudo reboot").join(['{"manifests": [{', "}]}"]),
        f'{{"manifests": [{{"digest": "{GOOD[:-1]}"}}]}}',
        f'{{"manifests": [{{"digest": "{GOOD}", "a": {"[" * 100_000}]}}',
    ],
)
def test_a_malformed_index_is_reported(index: str, tmp_path: Path) -> None:
    one = parts(tmp_path / "1", b"one")
    publish(one, tmp_path / "out", "one", "amd64", move=False)
    (tmp_path / "out/index.json").write_text(index)
    with pytest.raises(PublishError, match="malformed") as caught:
        publish(one, tmp_path / "out", "app", "amd64", move=False)
    assert caught.value.message == "the index of the layout is malformed" and caught.value.exit_code == 8
    assert (tmp_path / "out/index.json").read_text() == index


def test_the_wait_for_a_locked_folder_is_reported_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may only read the folder can hold it."""
    monkeypatch.setattr(lock_holder, "PATIENCE", 0.1)
    monkeypatch.setattr(publish_folder, "WAIT", 0.3)
    one, out, reported = parts(tmp_path / "1", b"one"), tmp_path / "out", list[str]()
    publish(one, out, "one", "amd64", move=False)
    with subprocess.Popen(["flock", str(out), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin and holder.stdout
        holder.stdin.write(b"x")
        holder.stdin.flush()
        assert holder.stdout.read(1) == b"x"  # cat runs, so the lock is held
        with pytest.raises(PublishError, match="its lock was held for") as caught:
            publish_to_folder(one, out, "app", "amd64", move=False, report=reported.append)
        assert f"process {holder.pid} of " in caught.value.message and caught.value.exit_code == 8
        holder.stdin.close()
    assert len(reported) == 1 and f"waiting for the lock of {out}, held by process {holder.pid} of " in reported[0]
    publish(one, out, "app", "amd64", move=False)
