"""A squashfs file that one store published and another one pulls: the same bytes, and only packs that are missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.core.errors import VerifyError
from envbuild.core.store.build_records import PACK_VERSION
from envbuild.publish import pack_blobs
from envbuild.publish.pull import pull_image
from envbuild.publish.show_remote import show_remote
from tests.support.as_user import open_folder, run_as
from tests.support.command import ROOT, envbuild
from tests.support.cutting_proxy import cutting
from tests.support.foreign_images import layers, noise, workspace
from tests.support.local_registry import Server, file, skopeo, tar
from tests.support.published import built, document, publish, publish_folder, pull
from tests.support.pulls import MORE, digest
from tests.support.pulls import no_pauses as no_pauses
from tests.support.push_proxy import pushing
from tests.support.signing import messages

pytestmark = pytest.mark.registry


def test_another_store_gets_the_same_file(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    name = f"{registry.host}/team/app:1"
    publish(parts, artifacts, name)
    first = pull(name, tmp_path / "b")
    assert (first["sha256"], digest(first["path"])) == (sha256, sha256)
    assert (first["digest"], first["squashfs"], first["up_to_date"]) == (parts.digest, artifacts[0].digest, False)
    assert (tmp_path / "b/artifacts/app-1.sqsh").resolve() == Path(first["path"])
    again = pull(name, tmp_path / "b")
    assert (again["up_to_date"], again["fetched"], again["fetched_bytes"]) == (True, 0, 0)
    out = pull(name, tmp_path / "b", tmp_path / "out.sqsh")
    assert (out["fetched"], digest(tmp_path / "out.sqsh")) == (0, sha256)
    assert pull(f"{registry.host}/team/app@{artifacts[0].digest}", tmp_path / "b")["sha256"] == sha256


def test_a_small_layer_may_be_in_an_image_more_than_once(tmp_path: Path) -> None:
    """Its pack is joined with others, and is in that blob once."""
    again = tar(file("opt/again", b"again"))
    parts, artifacts, sha256 = built(tmp_path / "a", [*layers(), again, tar(file("opt/other", b"other")), again])
    publish_folder(parts, artifacts, tmp_path / "shared", "1")
    assert pull(f"oci:{tmp_path}/shared:1", tmp_path / "b")["sha256"] == sha256


def test_a_file_that_a_member_of_the_group_replaced_is_written_again(tmp_path: Path) -> None:
    """Its size and its time are what that member made them, and another file of this user can have its name."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b").chmod(0o3775)
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish_folder(parts, artifacts, tmp_path / "shared", "1")
    name = f"oci:{tmp_path}/shared:1"
    path = Path(pull(name, tmp_path / "b")["path"])
    content, times = bytearray(path.read_bytes()), path.stat().st_mtime_ns
    assert pull(name, tmp_path / "b")["up_to_date"]
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times, times))
    assert not pull(name, tmp_path / "b")["up_to_date"] and digest(path) == sha256


def test_an_image_of_another_repository_does_not_take_the_name(tmp_path: Path, registry: Server) -> None:
    """A job that names the link would start the other team's image."""
    team, other = built(tmp_path / "1", layers()), built(tmp_path / "2", [*layers(), MORE])
    publish(*team[:2], f"{registry.host}/team/app:1")
    publish(*other[:2], f"{registry.host}/other/app:1")
    link = tmp_path / "b/artifacts/app-1.sqsh"
    first = pull(f"{registry.host}/team/app:1", tmp_path / "b")
    at = workspace(tmp_path / "b")
    second = pull_image(f"{registry.host}/other/app:1", None, at).data
    assert link.resolve() == Path(first["path"])
    assert digest(second["path"]) == other[2]
    assert f"remains a link to {registry.host}/team/app:1" in messages(at)
    publish(*other[:2], f"{registry.host}/team/app:1", move=True)
    third = pull(f"{registry.host}/team/app:1", tmp_path / "b")  # the next version of the same one does
    assert link.resolve() == Path(third["path"]) == Path(second["path"])


def test_only_new_packs_travel(tmp_path: Path, registry: Server) -> None:
    one, two = built(tmp_path / "1", layers()), built(tmp_path / "2", [*layers(), MORE])
    with pushing(registry.host) as proxy:
        host = proxy.url.removeprefix("http://")
        publish(*one[:2], f"{host}/app:1")
        proxy.asked.clear()
        publish(*two[:2], f"{host}/app:2")
        assert 400_000 < sum(proxy.sent("PUT")) < 900_000  # the layer, its pack, and small documents
    pull(f"{registry.host}/app:1", tmp_path / "b")
    with cutting(registry.host) as counter:
        made = pull(f"{counter.url.removeprefix('http://')}/app:2", tmp_path / "b")
        assert made["sha256"] == two[2] and made["fetched_bytes"] < 500_000
        fetched = {path.rpartition(":")[2] for path, _ in counter.asked}
    sizes = [registry.blob(found).stat().st_size for found in fetched]
    assert sum(sizes) < 500_000 and made["present"] == 2


def test_packs_that_the_store_made_itself_are_used(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    made = pull(f"{registry.host}/app:1", tmp_path / "a/store")
    assert made["sha256"] == sha256 and made["own_packs"] == 3 and made["fetched"] == 1  # the tables
    for pack in (tmp_path / "a/store/packs").glob(f"*.v{PACK_VERSION}"):
        if pack.stat().st_size > 1_000_000:
            with pack.open("r+b") as damaged:
                damaged.seek(5000)
                damaged.write(b"wrong")
    shutil.rmtree(tmp_path / "a/store/artifacts")
    made = pull(f"{registry.host}/app:1", tmp_path / "a/store")
    assert made["sha256"] == sha256 and made["own_packs"] == 2


def test_reading_packs_is_reported_in_bytes(tmp_path: Path) -> None:
    """Of a publish: the packs, and then the file that they result in. Of a pull: the file."""
    (tmp_path / "w").mkdir()
    parts, artifacts, _ = built(tmp_path / "a", layers())
    packs = [path for path in (tmp_path / "a/store/packs").iterdir() if path.suffix == f".v{PACK_VERSION}"]
    read: list[int] = []
    pack_blobs.make_pack_blobs(packs, tmp_path / "w", read.append)
    assert sum(read) == sum(pack.stat().st_size for pack in packs) and len(read) > len(packs)
    publish_folder(parts, artifacts, tmp_path / "shared", "1")
    at, seen = workspace(tmp_path / "b"), list[tuple[str, int, int]]()
    at.reporter.advance = lambda *values: seen.append(values)  # type: ignore[method-assign, assignment]
    made = pull_image(f"oci:{tmp_path}/shared:1", None, at).data
    assert seen[-1] == ("squashfs", made["size"], made["size"]) and ("pull", made["fetched_bytes"]) in {
        values[:2] for values in seen
    }


def test_nothing_is_compressed_by_a_pull(tmp_path: Path, registry: Server) -> None:
    """So the version of a compression library does not decide the bytes."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    code = (
        "import zstandard; zstandard.ZstdCompressor = zstandard.ZstdDecompressor = None; from pathlib import Path;"
        "from tests.support.published import pull; "
        f"print(pull({registry.host + '/app:1'!r}, Path({str(tmp_path / 'b')!r}))['sha256'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == sha256, done.stderr


def test_the_file_is_not_read_from_the_disk_for_its_digest(tmp_path: Path) -> None:
    """It has just been written, and so have the blobs."""
    if not os.major(tmp_path.stat().st_dev):
        pytest.skip("the folder of the tests is in memory")
    more = [tar(file(f"more-{number}", noise(8_000_000, number))) for number in range(4)]
    parts, artifacts, sha256 = built(tmp_path / "a", [*layers(), *more])
    publish_folder(parts, artifacts, tmp_path / "shared", "1")

    def read_bytes() -> int:
        (line,) = (line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("read_bytes"))
        return int(line.split()[1])

    before = read_bytes()
    assert pull(f"oci:{tmp_path}/shared:1", tmp_path / "b")["sha256"] == sha256
    assert read_bytes() - before < 10_000_000


def test_a_user_without_subordinate_ids_pulls(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    with open_folder() as place:
        place.chmod(0o777)
        made = run_as(4321, 4321, (), lambda: pull(f"{registry.host}/app:1", place / "store"))
        assert (made["sha256"], digest(made["path"])) == (sha256, sha256)


def test_the_command_that_starts_the_file_here_is_printed(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    name, out = f"{registry.host}/app:1", tmp_path / "my images" / "app.sqsh"
    publish(parts, artifacts, name)
    out.parent.mkdir()
    for words, path in (([], "/artifacts/app-1-"), (["-o", str(out)], f" '{out}' ")):
        made = envbuild("pull", name, *words, ENVBUILD_STORE=str(tmp_path / "b"))
        last = made.stdout.splitlines()[-1]
        assert last.startswith("  here:   envbuild run ") and last.endswith(" -- bash") and path in last, made.stderr
    other = envbuild("pull", name, "--platform", "linux/amd64", ENVBUILD_STORE=str(tmp_path / "b"))
    assert other.returncode == 0 and "envbuild run" not in other.stdout  # which may be a platform of other machines


def test_a_folder_serves_images_and_their_files(tmp_path: Path) -> None:
    one, two = built(tmp_path / "1", layers()), built(tmp_path / "2", [*layers(), MORE])
    there = tmp_path / "shared"
    publish_folder(*one[:2], there, "one")
    assert pull(str(there), tmp_path / "b")["sha256"] == one[2]  # the only image: artifacts are not images
    assert publish_folder(*one[:2], there, "one") == (0, 0)
    before = sum(path.stat().st_size for path in (there / "blobs/sha256").iterdir())
    publish_folder(*two[:2], there, "two")
    assert sum(path.stat().st_size for path in (there / "blobs/sha256").iterdir()) < before + 900_000
    made = pull(f"oci:{there}:two", tmp_path / "b")
    assert made["sha256"] == digest(made["path"]) == two[2] and made["fetched_bytes"] < 500_000
    for tag, found in (("one", one), ("two", two)):
        assert json.loads(skopeo("inspect", f"oci:{there}:{tag}"))["Digest"] == found[0].digest
    publish_folder(*two[:2], there, "one")  # moved: what belongs to the first image remains
    assert one[0].digest.replace(":", "-") in (there / "index.json").read_text()
    assert pull(f"oci:{there}:one", tmp_path / "c")["sha256"] == two[2]


def test_an_image_without_a_squashfs_file_is_converted(tmp_path: Path, registry: Server) -> None:
    parts, _, sha256 = built(tmp_path / "a", layers())
    publish(parts, [], f"{registry.host}/layout:x")
    made = pull(f"{registry.host}/layout:x", tmp_path / "b", tmp_path / "out.sqsh")
    assert made["source"] and digest(tmp_path / "out.sqsh") == sha256 == made["sha256"]


def test_show_of_a_published_image_reads_no_layers(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    with cutting(registry.host) as counter:
        name = f"docker://{counter.url.removeprefix('http://')}/app:1"
        found = show_remote(name, workspace(tmp_path / "b")).data
        assert found["digest"] == parts.digest and found["squashfs"]["sha256"] == sha256
        assert found["squashfs"]["missing_bytes"] > 3_000_000 and len(found["layers"]) == 3
        pull(name, tmp_path / "b")
        assert show_remote(name, workspace(tmp_path / "b")).data["squashfs"]["missing_bytes"] == 0
        assert show_remote(name, workspace(tmp_path / "a/store")).data["squashfs"]["missing_bytes"] < 20_000
        counter.asked.clear()
        show_remote(name, workspace(tmp_path / "c"))
        assert sum(registry.blob(path.rpartition(":")[2]).stat().st_size for path, _ in counter.asked) < 10_000
        assert not list((tmp_path / "c/blobs/sha256").iterdir())
    publish(parts, [], f"{registry.host}/plain:1")
    plain = show_remote(f"docker://{registry.host}/plain:1", workspace(tmp_path / "c"))
    assert plain.data["squashfs"] is None and "none" in plain.text


def test_the_file_is_also_there_as_one_blob(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers(), whole=True)
    publish(parts, artifacts, f"{registry.host}/app:1")
    assert digest(registry.blob(sha256)) == sha256
    assert json.loads(artifacts[1].manifest)["layers"][0]["annotations"] == {
        "org.opencontainers.image.title": "app.sqsh"
    }
    skopeo("copy", "--src-tls-verify=false", f"docker://{registry.host}/app@{artifacts[1].digest}", f"dir:{tmp_path}/w")
    assert digest(tmp_path / "w" / sha256) == sha256


def test_a_file_that_has_changed_is_not_published_as_one_blob(tmp_path: Path) -> None:
    """Its packs are whole, and what is published of them would be what the sha256 names."""

    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1  # noise of a layer
        path.unlink()
        path.write_bytes(content)

    assert built(tmp_path / "a", layers(), change=change)
    with pytest.raises(VerifyError, match="the squashfs file of app has changed: expected sha256"):
        built(tmp_path / "b", layers(), change=change, whole=True)


def test_large_packs_are_split_and_many_small_ones_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_blobs, "LARGE", 2 << 20)
    monkeypatch.setattr(pack_blobs, "PART", 1 << 20)
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    assert [len(pack["blobs"]) for pack in document(artifacts[0])["packs"]] == [1, 3, 1]
    publish_folder(parts, artifacts, tmp_path / "shared", "1")
    assert pull(f"oci:{tmp_path}/shared:1", tmp_path / "b")["sha256"] == sha256
    small, large = 10_000, 5 << 20
    assert pack_blobs.group_packs([small, small, large, small, large]) == [[0, 1], [2], [3], [4]]
    for count in (91, 1000, 4000):
        groups = pack_blobs.group_packs([large] * count)
        assert len(groups) <= pack_blobs.MOST and [number for group in groups for number in group] == list(range(count))
