"""Pulls of what is damaged, missing, interrupted or another image's: never stored, named, and resumed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import ConflictError, EnvbuildError, InputError, VerifyError
from envbuild.publish.artifact_types import LOCK, SPEC
from envbuild.publish.published_texts import PublishedText
from envbuild.publish.pull import pull_image
from envbuild.publish.show_remote import show_remote
from envbuild.publish.squashfs_artifact import Artifact, make_artifact, read_slice
from tests.support.cutting_proxy import cutting
from tests.support.foreign_images import layers, workspace
from tests.support.local_registry import Server, skopeo
from tests.support.published import built, document, publish, publish_folder, pull
from tests.support.pulls import MORE, digest
from tests.support.pulls import no_pauses as no_pauses

pytestmark = pytest.mark.registry


def changed(artifact: Artifact, work: Path, change: Callable[[dict[str, Any]], object]) -> Artifact:
    """Return an artifact with another document."""
    work.mkdir()
    value = document(artifact)
    change(value)
    (work / "document").write_text(json.dumps(value))
    manifest = json.loads(artifact.manifest)
    blobs = {f"sha256:{blob.digest}": blob for blob in artifact.blobs}
    parts = [(layer["mediaType"], blobs[layer["digest"]]) for layer in manifest["layers"][1:]]
    first = (manifest["layers"][0]["mediaType"], read_slice(work / "document", "document"))
    return make_artifact(artifact.kind, [first, *parts], manifest["subject"], work)


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_transfer_resumes(tmp_path: Path, registry: Server, ranges: bool) -> None:
    """A registry that ignores ranges sends all again."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    with cutting(registry.host) as proxy:
        proxy.cuts, proxy.ranges, proxy.least = [100_000, 500_000, 70_000], ranges, 1_000_000
        made = pull(f"{proxy.url.removeprefix('http://')}/app:1", tmp_path / "b")
        assert made["sha256"] == digest(made["path"]) == sha256 and not proxy.cuts
        resumed = [wanted for _, wanted in proxy.asked if wanted]
        assert resumed[0] == "bytes=100000-"


def test_wrong_bytes_are_never_stored(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    with cutting(registry.host) as proxy:
        proxy.wrong, proxy.least = True, 100_000
        with pytest.raises(VerifyError) as caught:
            pull(f"{proxy.url.removeprefix('http://')}/app:1", tmp_path / "b")
        assert caught.value.exit_code == 7 and "digest mismatch" in caught.value.message
        assert not list((tmp_path / "b/artifacts").iterdir())
        proxy.wrong = False
        assert pull(f"{proxy.url.removeprefix('http://')}/app:1", tmp_path / "b")["sha256"] == sha256


@pytest.mark.parametrize("kind", ["changed", "shorter", "longer"])
def test_a_damaged_blob_of_the_store_is_fetched_again(tmp_path: Path, registry: Server, kind: str) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    pull(f"{registry.host}/app:1", tmp_path / "b")
    blob = max((tmp_path / "b/blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    with blob.open("r+b") as damaged:
        if kind == "shorter":
            damaged.truncate(10_000)
        damaged.seek(10_000 if kind == "changed" else 0, os.SEEK_SET if kind != "longer" else os.SEEK_END)
        damaged.write(b"wrong")
    made = pull(f"{registry.host}/app:1", tmp_path / "b", tmp_path / "out.sqsh")
    assert (made["sha256"], digest(tmp_path / "out.sqsh"), made["fetched"]) == (sha256, sha256, 1)


def test_a_missing_blob_is_named(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    missing = max(artifacts[0].blobs, key=lambda blob: blob.size).digest
    shutil.rmtree(registry.blob(missing).parent)
    with pytest.raises(InputError, match=missing) as caught:
        pull(f"{registry.host}/app:1", tmp_path / "b")
    assert caught.value.exit_code == 10


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (lambda value: value.update(format=3, envbuild="9.9"), InputError, "format 3, by envbuild 9.9"),
        (lambda value: value["file"].update(sha256="0" * 64), VerifyError, "do not result"),
        (lambda value: value["image"].update(manifest="sha256:" + "1" * 64), VerifyError, "another image"),
        (lambda value: value["extents"].__setitem__(2, 1 << 50), InputError, "not in their order"),
        (lambda value: value["packs"][0].update(key="../../etc/passwd"), InputError, "name of a pack"),
        (lambda value: value["packs"][0]["blobs"][0].__setitem__(2, 5), InputError, "another size"),
        (lambda value: value["packs"][0]["blobs"][0].__setitem__(0, "sha256:" + "a" * 64), InputError, "outside"),
        (lambda value: value["file"].update(size=1 << 40), InputError, "far larger than the blobs"),
        (lambda value: value.update(packs="x"), InputError, "packs"),
        (lambda value: value.pop("tables"), InputError, "tables"),
    ],
)
def test_a_wrong_document_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], kind: type[EnvbuildError], text: str
) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers(), bound=False)
    publish_folder(parts, [changed(artifacts[0], tmp_path / "other", change)], tmp_path / "shared", "1")
    with pytest.raises(kind, match=text):
        pull(f"oci:{tmp_path}/shared:1", tmp_path / "b")
    assert not list((tmp_path / "b/artifacts").iterdir())


def test_the_size_that_an_artifact_states_for_a_blob_is_compared(tmp_path: Path) -> None:
    """The file is bounded by these sizes: a larger one would let a small blob become a file of any size."""
    parts, artifacts, _ = built(tmp_path / "a", layers(), bound=False)
    own = artifacts[0]
    manifest = json.loads(own.manifest)
    manifest["layers"][-1]["size"] += 1 << 30
    content = json.dumps(manifest).encode()
    lie = Artifact(own.kind, content, f"sha256:{hashlib.sha256(content).hexdigest()}", own.subject, own.blobs)
    publish_folder(parts, [lie], tmp_path / "shared", "1")
    with pytest.raises(VerifyError, match="the artifact states"):
        pull(f"oci:{tmp_path}/shared:1", tmp_path / "b")


@pytest.mark.parametrize("kind", ["document", "tables"])
def test_links_out_of_a_layout_are_not_read(tmp_path: Path, kind: str) -> None:
    """The digest of a file that only the caller may read would be in the error."""
    parts, artifacts, _ = built(tmp_path / "a", layers())
    publish_folder(parts, artifacts, tmp_path / "shared", "1")
    secret = tmp_path / "secret"
    secret.write_text("password")
    listed = json.loads(artifacts[0].manifest)["layers"][0 if kind == "document" else 1]["digest"][7:]
    blob = tmp_path / "shared/blobs/sha256" / listed
    blob.unlink()
    blob.symlink_to(secret)
    with pytest.raises(InputError, match="outside of the layout") as caught:
        pull(f"oci:{tmp_path}/shared:1", tmp_path / "b")
    assert digest(secret) not in str(caught.value)


def test_an_artifact_of_another_image_is_refused(tmp_path: Path, registry: Server) -> None:
    """In the list of the first image's artifacts the one of the second."""
    one, two = built(tmp_path / "1", layers()), built(tmp_path / "2", [*layers(), MORE])
    publish(*two[:2], f"{registry.host}/app:2")
    lie = Artifact(two[1][0].kind, two[1][0].manifest, two[1][0].digest, one[0].digest, two[1][0].blobs)
    publish(one[0], [lie], f"{registry.host}/app:1")
    with pytest.raises(VerifyError, match="another image"):
        pull(f"{registry.host}/app:1", tmp_path / "b")


def test_the_digest_of_an_image_fixes_its_squashfs_file(tmp_path: Path, registry: Server) -> None:
    """What a registry or a mirror lists as the artifacts of an image is bound by nothing but the image's manifest."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers(), texts=[PublishedText(SPEC, "a.yaml", b"own")])
    name = f"{registry.host}/app"
    publish(parts, artifacts, f"{name}:1")
    _, others, evil = built(tmp_path / "b", [*layers(), MORE])
    other = changed(others[0], tmp_path / "c", lambda value: value["image"].update(manifest=parts.digest))
    work = tmp_path / "d"
    work.mkdir()
    blobs = {f"sha256:{blob.digest}": blob for blob in other.blobs}
    listed = [(item["mediaType"], blobs[item["digest"]]) for item in json.loads(other.manifest)["layers"]]
    forged = make_artifact(other.kind, listed, parts.subject, work)
    publish(parts, [*artifacts, forged], f"{name}:1")
    for reference in (f"{name}@{parts.digest}", f"{name}:1"):  # the right one of the two is taken
        made = pull(reference, tmp_path / "e", tmp_path / "out.sqsh")
        assert (made["sha256"], made["squashfs"]) == (sha256, artifacts[0].digest) != (evil, forged.digest)
    alone = f"{registry.host}/alone"
    publish(parts, [forged], f"{alone}:1")
    for reference in (f"{alone}@{parts.digest}", f"{alone}:1", f"{alone}@{forged.digest}"):  # of itself: what it claims
        with pytest.raises(VerifyError, match="another squashfs file, spec or lock"):
            pull(reference, tmp_path / "f")
        with pytest.raises(VerifyError, match="another squashfs file, spec or lock"):
            show_remote(f"docker://{reference}", workspace(tmp_path / "f"))


def test_the_architecture_is_that_of_the_configuration(tmp_path: Path, registry: Server) -> None:
    """Nothing binds the document of the squashfs file, in which a mirror can write another one."""
    parts, artifacts, _ = built(tmp_path / "a", layers())
    other = changed(artifacts[0], tmp_path / "c", lambda value: value["image"].update(architecture="arm64"))
    publish(parts, [other], f"{registry.host}/app:1")
    with pytest.raises(ConflictError, match="is made for linux/amd64"):
        pull_image(f"{registry.host}/app:1", None, workspace(tmp_path / "b"), "linux/arm64")


def test_other_texts_than_those_of_the_image_are_refused(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers(), texts=[PublishedText(SPEC, "a.yaml", b"own")])
    (tmp_path / "text").write_bytes(b"forged")
    blobs = {f"sha256:{blob.digest}": blob for blob in artifacts[0].blobs}
    listed = [(item["mediaType"], blobs[item["digest"]]) for item in json.loads(artifacts[0].manifest)["layers"]]
    for kind, place in ((SPEC, "spec"), (LOCK, "lock")):
        work = tmp_path / place
        work.mkdir()
        forged = (kind, read_slice(tmp_path / "text", "a.yaml"))
        other = make_artifact(artifacts[0].kind, [*listed, forged], parts.subject, work)
        publish(parts, [other], f"{registry.host}/{place}:1", move=True)
        with pytest.raises(VerifyError, match="another squashfs file, spec or lock"):
            show_remote(f"docker://{registry.host}/{place}:1", workspace(tmp_path / "f"))


def test_an_image_that_names_no_file_is_converted_where_it_is_pinned(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers(), bound=False)
    publish(parts, artifacts, f"{registry.host}/app:1")
    assert pull(f"{registry.host}/app:1", tmp_path / "b")["sha256"] == sha256
    made = pull(f"{registry.host}/app@{parts.digest}", tmp_path / "b")
    assert "squashfs" not in made and made["layers"]
    assert pull(f"{registry.host}/app@{artifacts[0].digest}", tmp_path / "b")["sha256"] == sha256


def test_a_newer_kind_of_artifact_is_refused_by_name(tmp_path: Path) -> None:
    parts, _, _ = built(tmp_path / "a", layers())
    (tmp_path / "w").mkdir()
    newer = make_artifact("application/vnd.envbuild.squashfs.v2", [], parts.subject, tmp_path / "w")
    publish_folder(parts, [newer], tmp_path / "shared", "1")
    with pytest.raises(InputError, match=r"squashfs\.v2"):
        pull(f"oci:{tmp_path}/shared:1", tmp_path / "b")


def test_the_list_of_artifacts_keeps_entries_of_other_publishers(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers(), whole=True)
    (tmp_path / "w").mkdir()
    other = make_artifact("application/vnd.cyclonedx+json", [], parts.subject, tmp_path / "w")
    publish(parts, [other], f"{registry.host}/app:1")
    made = publish(parts, artifacts, f"{registry.host}/app:1")
    assert made.sent and publish(parts, artifacts, f"{registry.host}/app:1").sent == 0
    listed = json.loads(
        skopeo(
            "inspect", "--raw", "--tls-verify=false", f"docker://{registry.host}/app:{parts.digest.replace(':', '-')}"
        )
    )
    assert [entry["digest"] for entry in listed["manifests"]] == [other.digest, *(item.digest for item in artifacts)]
    assert pull(f"{registry.host}/app:1", tmp_path / "b")["sha256"] == sha256
