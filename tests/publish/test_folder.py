"""Publishing into a layout that several images share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from envbuild.core.errors import PublishError, VerifyError
from envbuild.core.store import lock_holder
from envbuild.publish import folder as publish_folder
from envbuild.publish.folder import publish_to_folder
from envbuild.publish.image_parts import ImageParts
from tests.support.as_user import open_folder, run_as
from tests.support.local_registry import Layout, file, skopeo, tar
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.clients


def parts(folder: Path, *contents: bytes, arch: str = "amd64") -> ImageParts:
    layout = Layout(folder)
    layout.add(layout.image([tar(file("f", content)) for content in contents], arch=arch), "x")
    return ImageParts.read(folder)


def publish(one: ImageParts, folder: Path, tag: str, *, move: bool) -> tuple[int, int]:
    return publish_to_folder(one, folder, tag, move=move, report=pytest.fail)


def test_images_share_blobs_and_have_tags_of_their_own(tmp_path: Path) -> None:
    one, two = parts(tmp_path / "1", b"base", b"one"), parts(tmp_path / "2", b"base", b"two")
    there = tmp_path / "shared"
    assert publish(one, there, "one", move=False)[0] == 4
    assert publish(two, there, "two", move=False)[0] == 3
    assert publish(two, there, "two", move=False) == (0, 0)
    for tag, found in (("one", one), ("two", two)):
        assert json.loads(skopeo("inspect", f"oci:{there}:{tag}"))["Digest"] == found.digest


def test_a_tag_has_an_image_of_each_architecture(tmp_path: Path) -> None:
    for arch in ("amd64", "arm64"):
        publish(parts(tmp_path / arch, arch.encode(), arch=arch), tmp_path / "out", "app", move=False)
    listed = json.loads((tmp_path / "out/index.json").read_bytes())["manifests"]
    assert sorted(item["platform"]["architecture"] for item in listed) == ["amd64", "arm64"]


def test_a_tag_moves_only_on_request(tmp_path: Path) -> None:
    one, two = parts(tmp_path / "1", b"one"), parts(tmp_path / "2", b"two")
    publish(one, tmp_path / "out", "app", move=False)
    before = (tmp_path / "out/index.json").read_bytes()
    with pytest.raises(PublishError) as caught:
        publish(two, tmp_path / "out", "app", move=False)
    assert "--move" in caught.value.hint and (tmp_path / "out/index.json").read_bytes() == before
    publish(two, tmp_path / "out", "app", move=True)
    assert json.loads(skopeo("inspect", f"oci:{tmp_path}/out:app"))["Digest"] == two.digest


def test_a_damaged_blob_is_written_again(tmp_path: Path) -> None:
    one = parts(tmp_path / "1", b"one")
    publish(one, tmp_path / "out", "app", move=False)
    blob = tmp_path / "out/blobs/sha256" / one.blobs[1].digest
    blob.write_bytes(bytes(blob.stat().st_size))
    assert publish(one, tmp_path / "out", "app", move=False)[0] == 1
    assert blob.read_bytes() == one.contents[1].open().read()


def test_a_file_of_holes_in_the_place_of_a_blob_is_replaced(tmp_path: Path) -> None:
    """Every publisher of the folder would read it for hours."""
    one = parts(tmp_path / "1", b"one")
    publish(one, tmp_path / "out", "app", move=False)
    blob = tmp_path / "out/blobs/sha256" / one.blobs[1].digest
    os.truncate(blob, 15 << 40)
    with ends_within(30):
        assert publish(one, tmp_path / "out", "app", move=False)[0] == 1
    assert blob.read_bytes() == one.contents[1].open().read()


def test_no_digest_is_computed_of_a_file_of_another_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On XFS and btrfs a file of petabytes may be one block many times, which counts in it each time (reflinks)."""
    one = parts(tmp_path / "1", b"one")
    publish(one, tmp_path / "out", "app", move=False)
    blob = tmp_path / "out/blobs/sha256" / one.blobs[1].digest
    with blob.open("ab") as file:
        file.write(b"more")
    digested: list[str] = []
    compute = publish_folder.file_digest

    def note(path: Path, *, follow: bool) -> str:
        digested.append(path.name)
        return compute(path, follow=follow)

    monkeypatch.setattr(publish_folder, "file_digest", note)
    assert publish(one, tmp_path / "out", "app", move=False)[0] == 1
    assert blob.read_bytes() == one.contents[1].open().read()
    assert blob.name not in digested


def test_a_folder_of_something_else_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/notes").write_text("mine")
    with pytest.raises(PublishError) as caught:
        publish(parts(tmp_path / "1", b"one"), tmp_path / "home", "app", move=False)
    assert caught.value.hint.endswith(f"--to oci:{tmp_path}/home/images")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["notes"]


@pytest.mark.parametrize("number", range(1, 7))
def test_an_interrupted_publish_is_repeated(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while it writes each of its files; unfinished ones are removed, and nothing else is."""
    one, out, left = parts(tmp_path / "1", b"one", b"two"), tmp_path / "out", number

    def end(file: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        monkeypatch.setattr(os, "fsync", end)
        publish(one, out, "app", move=False)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert list(out.rglob(".*"))
    (out / "blobs").mkdir(exist_ok=True)
    (out / "blobs/.mine").write_text("mine")
    publish(one, out, "app", move=False)
    assert [path.name for path in out.rglob(".*")] == [".mine"]
    assert json.loads(skopeo("inspect", f"oci:{out}:app"))["Digest"] == one.digest


def test_the_blobs_of_an_interrupted_publish_alone_are_taken(tmp_path: Path) -> None:
    """Earlier versions wrote `oci-layout` last."""
    one, out = parts(tmp_path / "1", b"one"), tmp_path / "out"
    (out / "blobs/sha256").mkdir(parents=True)
    (out / "blobs/sha256" / f".{'a' * 64}.0123abcd").write_bytes(b"x")
    publish(one, out, "app", move=False)
    assert json.loads(skopeo("inspect", f"oci:{out}:app"))["Digest"] == one.digest


def test_links_of_other_users_are_not_followed(tmp_path: Path) -> None:
    """In the place of a folder, of a blob and of the index; a FIFO does not stop the command."""
    one, victim, there = parts(tmp_path / "1", b"one"), tmp_path / "victim", tmp_path / "out"
    victim.mkdir()
    (victim / "sha256").mkdir()
    there.mkdir()
    (there / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (there / "blobs").symlink_to(victim)
    with pytest.raises(PublishError) as caught:
        publish(one, there, "app", move=False)
    assert caught.value.exit_code == 8 and not list((victim / "sha256").iterdir())
    (there / "blobs").unlink()
    (there / "blobs/sha256").mkdir(parents=True)
    (there / "blobs/sha256" / one.blobs[1].digest).symlink_to(victim / "file")
    publish(one, there, "app", move=False)
    assert not (victim / "file").exists() and not (there / "blobs/sha256" / one.blobs[1].digest).is_symlink()
    (there / "index.json").unlink()
    os.mkfifo(there / "index.json")
    with pytest.raises(PublishError, match="malformed"):
        publish(one, there, "app", move=False)


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
    publish(one, tmp_path / "out", "one", move=False)
    (tmp_path / "out/index.json").write_text(index)
    with pytest.raises(PublishError, match="malformed") as caught:
        publish(one, tmp_path / "out", "app", move=False)
    assert caught.value.message == "the index of the layout is malformed" and caught.value.exit_code == 8
    assert (tmp_path / "out/index.json").read_text() == index


def test_the_wait_for_a_locked_folder_is_reported_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may only read the folder can hold it."""
    monkeypatch.setattr(lock_holder, "PATIENCE", 0.1)
    monkeypatch.setattr(publish_folder, "WAIT", 0.3)
    one, out, reported = parts(tmp_path / "1", b"one"), tmp_path / "out", list[str]()
    publish(one, out, "one", move=False)
    with subprocess.Popen(["flock", str(out), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin and holder.stdout
        holder.stdin.write(b"x")
        holder.stdin.flush()
        assert holder.stdout.read(1) == b"x"  # cat runs, so the lock is held
        with pytest.raises(PublishError, match="its lock was held for") as caught:
            publish_to_folder(one, out, "app", move=False, report=reported.append)
        assert f"process {holder.pid} of " in caught.value.message and caught.value.exit_code == 8
        holder.stdin.close()
    assert len(reported) == 1 and f"waiting for the lock of {out}, held by process {holder.pid} of " in reported[0]
    publish(one, out, "app", move=False)


def test_a_blob_that_changes_while_it_is_published_is_refused(tmp_path: Path) -> None:
    """A folder digests what it gets, as a registry does."""
    one = parts(tmp_path / "1", b"one")
    digest = max(one.contents, key=lambda blob: blob.size).digest
    changed = tmp_path / "1/blobs/sha256" / digest
    content = changed.read_bytes()
    changed.chmod(0o644)
    changed.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(VerifyError, match=f"expected sha256 {digest}, got "):
        publish(one, tmp_path / "out", "app", move=False)
    assert not (tmp_path / "out/blobs/sha256" / digest).exists() and not (tmp_path / "out/index.json").exists()


def test_an_index_that_no_reader_accepts_is_not_written(tmp_path: Path) -> None:
    one = parts(tmp_path / "1", b"one")
    publish(one, tmp_path / "out", "one", move=False)
    path = tmp_path / "out/index.json"
    value = json.loads(path.read_bytes())
    value["manifests"] += [{"digest": GOOD, "size": 1}] * (100_000 - 1)
    path.write_text(json.dumps(value))
    before = path.read_bytes()
    with pytest.raises(PublishError, match="an index of 100001 entries would be unreadable"):
        publish(one, tmp_path / "out", "app", move=False)
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", [0o2775, 0o3775])
def test_users_of_a_group_publish_into_one_folder_with_any_umask(mode: int, tmp_path: Path) -> None:
    """With the sticky bit only the first one does, and the hint removes it."""
    group = 64242
    with open_folder() as place:
        sources = [parts(place / name, name.encode()) for name in ("one", "two")]
        there = place / "shared"
        there.mkdir()
        os.chown(there, 0, group)
        there.chmod(mode)

        def send(number: int) -> str:
            os.umask(0o077)
            try:
                publish(sources[number], there, f"v{number}", move=False)
            except PublishError as error:
                return str(error.hint)
            return ""

        assert run_as(64001, 64001, (group,), lambda: send(0)) == ""
        second = run_as(64002, 64002, (group,), lambda: send(1))
        assert second == (f"chmod -t {there}" if mode & 0o1000 else "")
        there.chmod(0o2775)
        assert run_as(64002, 64002, (group,), lambda: send(1)) == ""
