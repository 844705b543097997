"""The reference of a launch, which must name the image that is built here before GPUs are checked in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import requests
import zstandard

from envbuild.core.errors import EnvbuildError, InputError
from envbuild.export import built_image
from envbuild.launch import gpu_tiers
from envbuild.launch.clients import Clients
from envbuild.launch.compared_tag import check_tag
from envbuild.launch.gpu_tiers import TierRequest, check_image, run_tier
from envbuild.launch.launch import Prepared, load_form
from envbuild.launch.model import LaunchImage
from envbuild.net.registry.media_types import INDEX, OCI
from envbuild.publish import squashfs_artifact
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.publish_source import publish_source
from tests.support.foreign_images import layers, workspace
from tests.support.gpu_bench import job
from tests.support.launching import shipped_target, site
from tests.support.local_registry import Server, file, tar
from tests.support.published import built, publish

pytestmark = pytest.mark.registry


def launched(parts: ImageParts, sha256: str, name: str) -> LaunchImage:
    """Return an image of the project that is built as `parts`, with the squashfs file `sha256` (hex), for its tag."""
    image = LaunchImage("app", "cpu", "amd64", {}, {}, (), reference=f"docker://{name}", built=True)
    return replace(image, configuration=f"sha256:{parts.blobs[0].digest}", sha256=f"sha256:{sha256}")


def upload(repository: str, blob: bytes) -> str:
    """Send a blob to an address of a repository; return its digest (``sha256:…``)."""
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    begun = requests.post(f"{repository}/blobs/uploads/", timeout=60).headers["Location"]
    assert requests.put(f"{begun}&digest={digest}", blob, timeout=60).status_code == 201
    return digest


def test_a_tag_that_names_another_image_is_refused(
    tmp_path: Path, registry: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A colleague, or another branch, may have moved it."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    at = workspace(tmp_path / "store")
    image = LaunchImage("app", "cpu", "amd64", {}, {}, (), "../app.yaml", reference=f"docker://{registry.host}/app:1")
    right = replace(image, configuration=f"sha256:{parts.blobs[0].digest}", sha256=f"sha256:{sha256}")
    assert check_tag(right, at) == parts.digest
    for form in ("srun", "docker"):
        assert check_image(right, form, at).docker == f"{registry.host}/app@{parts.digest}"
        assert check_image(replace(right, moved=("of the record alone", "")), form, at).docker.endswith(parts.digest)
    # Docker starts no file, so that one of compute nodes that is another image has no effect on it
    other = replace(right, squashfs="/fs/app.sqsh", other=("another", "copy it"))
    assert check_image(other, "docker", at).docker.endswith(parts.digest)
    with pytest.raises(EnvbuildError, match="another image than the one that is built here"):
        check_image(replace(other, configuration=f"sha256:{'0' * 64}"), "docker", at)
    with pytest.raises(EnvbuildError, match="another image than the one that is built here") as caught:
        check_tag(replace(image, configuration=f"sha256:{'0' * 64}"), at)
    assert caught.value.hint == "envbuild publish ../app.yaml --move"
    with pytest.raises(InputError):
        check_tag(replace(image, reference=f"docker://{registry.host}/app:2"), at)
    source, place = f"oci:{tmp_path}/a/layout:x", f"{registry.host}/app:alone"
    monkeypatch.setattr("envbuild.publish.squashfs_document.__version__", "0.0.9")  # an earlier one published it
    alone = publish_source(source, place, workspace(tmp_path / "c"), layers=False).data
    monkeypatch.undo()
    image = replace(image, reference=f"docker://{place}", sha256=f"sha256:{alone['sha256']}")
    given: list[str] = []
    monkeypatch.setattr(built_image, "load_built_image", lambda name, *_: given.append(name))
    own = {"0.0.9": alone["digest"]}
    monkeypatch.setattr(squashfs_artifact, "lone_digest", lambda image, at, release: own[release])
    assert check_tag(image, at) == alone["digest"] and given == ["../app.yaml"]
    monkeypatch.setattr(squashfs_artifact, "lone_digest", lambda *_: f"sha256:{'0' * 64}")
    with pytest.raises(EnvbuildError, match="was published with other blobs"):
        check_tag(image, at)
    with pytest.raises(EnvbuildError, match="another image than the one that is built here"):
        check_tag(replace(image, sha256=f"sha256:{'0' * 64}"), at)


@pytest.mark.parametrize("change", ["layers", "annotations", "artifact", "artifact-layers"])
def test_a_tag_with_the_configuration_of_the_image_and_other_content_is_refused(
    tmp_path: Path, registry: Server, change: str
) -> None:
    """Who may write the tag can list other layers, which enroot does not compare, and another squashfs file."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    others, other_artifacts, _ = built(tmp_path / "b", [*layers()[:-1], tar(file("evil", b"x"))])
    at, place = workspace(tmp_path / "store"), f"{registry.url}/v2/{change}/manifests"
    publish(parts, artifacts, f"{registry.host}/{change}:1")
    publish(others, other_artifacts, f"{registry.host}/{change}:other")
    image = launched(parts, sha256, f"{registry.host}/{change}:1")
    assert check_tag(image, at) == parts.digest
    kind = {"Accept": OCI.manifest, "Content-Type": OCI.manifest}
    manifest, other = (requests.get(f"{place}/{tag}", headers=kind, timeout=60).json() for tag in ("1", "other"))
    kinds = {"artifactType": "application/vnd.example"}  # which enroot, Docker and containerd do not read
    changed = {
        "layers": {"layers": other["layers"]},
        "annotations": {"annotations": other["annotations"]},
        "artifact": {**kinds, "layers": other["layers"], "config": other["config"]},
        "artifact-layers": {**kinds, "layers": other["layers"]},
    }[change]
    assert any(manifest.get(key) != value for key, value in changed.items())
    text = json.dumps({**manifest, **changed})
    assert requests.put(f"{place}/1", text, headers=kind, timeout=60).status_code == 201
    with pytest.raises(EnvbuildError, match=r"another image than|and its image names"):
        check_tag(image, at)


@pytest.mark.parametrize("kind", ["gzip", "none"])
def test_a_blob_that_programs_unpack_in_two_ways_is_refused(tmp_path: Path, registry: Server, kind: str) -> None:
    """By its first bytes it is the built layer in zstd, behind a skippable frame; by its media type a tar whose first
    file has that frame as its name, and in which a file follows that the built layer does not have."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/{kind}:1")
    at, place = workspace(tmp_path / "store"), f"{registry.url}/v2/{kind}"
    head = {"Accept": OCI.manifest, "Content-Type": OCI.manifest}
    manifest = requests.get(f"{place}/manifests/1", headers=head, timeout=60).json()
    skipped = tar(file("evil", b"x"))
    blob = b"\x50\x2a\x4d\x18" + len(skipped).to_bytes(4, "little") + skipped + zstandard.compress(layers()[-1])
    digest = upload(place, blob)
    entry = {"mediaType": OCI.layers[kind], "digest": digest, "size": len(blob)}
    text = json.dumps({**manifest, "layers": [*manifest["layers"][:-1], entry]})
    assert requests.put(f"{place}/manifests/1", text, headers=head, timeout=60).status_code == 201
    image = launched(parts, sha256, f"{registry.host}/{kind}:1")
    with pytest.raises(InputError, match=r"it is not gzip, as its media type|it is not the tar that its media type"):
        check_tag(image, at)


def test_a_blob_that_was_compared_by_another_media_type_is_compared_again(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/kinds:1")
    at, place = workspace(tmp_path / "store"), f"{registry.url}/v2/kinds"
    head = {"Accept": OCI.manifest, "Content-Type": OCI.manifest}
    manifest = requests.get(f"{place}/manifests/1", headers=head, timeout=60).json()
    blob = zstandard.compress(layers()[-1])
    digest = upload(place, blob)
    image = launched(parts, sha256, f"{registry.host}/kinds:1")
    for kind in ("zstd", "gzip"):
        entry = {"mediaType": OCI.layers[kind], "digest": digest, "size": len(blob)}
        text = json.dumps({**manifest, "layers": [*manifest["layers"][:-1], entry]})
        assert requests.put(f"{place}/manifests/1", text, headers=head, timeout=60).status_code == 201
        if kind == "zstd":
            assert check_tag(image, at).startswith("sha256:")
    with pytest.raises(InputError, match="it is not gzip, as its media type states"):
        check_tag(image, at)


def test_a_blob_with_two_media_types_is_refused(tmp_path: Path, registry: Server) -> None:
    """As of a layer that an image has twice: enroot unpacks each by its own."""
    twice = [*layers(), layers()[-1]]
    parts, artifacts, sha256 = built(tmp_path / "a", twice)
    publish(parts, artifacts, f"{registry.host}/twice:1")
    at, place = workspace(tmp_path / "store"), f"{registry.url}/v2/twice"
    head = {"Accept": OCI.manifest, "Content-Type": OCI.manifest}
    manifest = requests.get(f"{place}/manifests/1", headers=head, timeout=60).json()
    blob = zstandard.compress(twice[-1])
    digest = upload(place, blob)
    image = launched(parts, sha256, f"{registry.host}/twice:1")
    for kinds, refused in ((("zstd", "zstd"), False), (("zstd", "gzip"), True), (("gzip", "zstd"), True)):
        last = [{"mediaType": OCI.layers[kind], "digest": digest, "size": len(blob)} for kind in kinds]
        text = json.dumps({**manifest, "layers": [*manifest["layers"][:-2], *last]})
        assert requests.put(f"{place}/manifests/1", text, headers=head, timeout=60).status_code == 201
        with pytest.raises(InputError, match=r"it is not .* media type") if refused else contextlib.nullcontext():
            check_tag(image, at)


@pytest.mark.parametrize(
    "first", [{"architecture": "amd64", "os": "windows"}, {"architecture": "amd64", "os": "linux", "variant": "v4"}]
)
def test_an_index_of_which_enroot_takes_another_entry_is_refused(
    tmp_path: Path, registry: Server, first: dict[str, str]
) -> None:
    """enroot takes the first entry of the architecture, for any system and variant."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    others, other_artifacts, _ = built(tmp_path / "b", [*layers()[:-1], tar(file("evil", b"x"))])
    publish(parts, artifacts, f"{registry.host}/index:own")
    publish(others, other_artifacts, f"{registry.host}/index:other")
    at, place = workspace(tmp_path / "store"), f"{registry.url}/v2/index/manifests"

    def entry(digest: str, platform: dict[str, str]) -> dict[str, object]:
        size = len(requests.get(f"{place}/{digest}", headers={"Accept": OCI.manifest}, timeout=60).content)
        return {"mediaType": OCI.manifest, "digest": digest, "size": size, "platform": platform}

    own, foreign = entry(parts.digest, {"architecture": "amd64", "os": "linux"}), entry(others.digest, first)
    arm = entry(others.digest, {"architecture": "arm64", "os": "linux"})
    for tag, listed in {"good": [arm, own, foreign], "bad": [foreign, own]}.items():
        text = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed})
        put = requests.put(f"{place}/{tag}", text, headers={"Content-Type": INDEX}, timeout=60)
        assert put.status_code == 201
    image = launched(parts, sha256, f"{registry.host}/index:good")
    bad = replace(image, reference=f"docker://{registry.host}/index:bad")
    for enroot in ("3.5.0", ""):
        assert check_image(image, "srun", at, enroot).reference == image.reference
        with pytest.raises(EnvbuildError, match="enroot before 4 takes another entry"):
            check_image(bad, "srun", at, enroot)
    by_digest = f"docker://{registry.host}/index@{parts.digest}"
    assert check_image(bad, "srun", at, "4.0.0").reference == by_digest
    assert f"docker://{check_image(bad, 'docker', at).docker}" == by_digest


def test_a_job_that_names_the_digest_has_results_after_the_tag_moved(
    tmp_path: Path, registry: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes have started what was compared, and hours of jobs are not thrown away."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    other, others, _ = built(tmp_path / "b", layers()[:1])
    publish(parts, artifacts, f"{registry.host}/named:1")
    image = launched(parts, sha256, f"{registry.host}/named:1")
    started: list[str] = []

    def run(_: object, prepared: Prepared, *__: object) -> str:
        started.append(prepared.image.reference)
        publish(other, others, f"{registry.host}/named:1", move=True)
        return "measured"

    monkeypatch.setattr(gpu_tiers, "run_node", run)
    monkeypatch.setattr(gpu_tiers, "job_form", lambda _: "sh")
    slurm = replace(site().slurm, enroot="4.0")
    prepared = Prepared(load_form("srun"), image, shipped_target("h100-ib"), Clients(slurm))
    assert run_tier(job(), prepared, TierRequest("gpu"), workspace(tmp_path / "store")) == "measured"  # type: ignore[comparison-overlap]
    assert started == [f"docker://{registry.host}/named@{parts.digest}"]


@pytest.mark.parametrize(("enroot", "pinned"), [("4.0.0", True), ("4.0", True), ("3.5.0", False), ("", False)])
def test_jobs_name_the_digest_where_enroot_pulls_it(
    enroot: str, pinned: bool, tmp_path: Path, registry: Server
) -> None:
    """A tag can be moved, and moved back, while a job waits."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/pinned:1")
    image = launched(parts, sha256, f"{registry.host}/pinned:1")
    found = check_image(image, "srun", workspace(tmp_path / "store"), enroot)
    by_digest = f"docker://{registry.host}/pinned@{parts.digest}"
    assert found.reference == (by_digest if pinned else image.reference)


def test_a_file_of_compute_nodes_that_is_another_one_is_refused(tmp_path: Path) -> None:
    """Also one that states to be the image, and is not: who may write the folder can put any file there."""
    file, at = tmp_path / "app.sqsh", workspace(tmp_path / "store")
    file.write_bytes(b"as it is built")
    digest = f"sha256:{hashlib.sha256(b'as it is built').hexdigest()}"
    image = LaunchImage("app", "cpu", "amd64", {}, {}, (), squashfs=str(file), sha256=digest)
    assert check_image(image, "srun", at) == image
    with pytest.raises(EnvbuildError, match="another"):
        check_image(replace(image, other=("another", "copy it")), "srun", at)
    file.write_bytes(b"as it is not b")
    with pytest.raises(EnvbuildError, match="has other bytes than the file of app that is built here") as caught:
        check_image(image, "srun", at)
    assert caught.value.hint == f"envbuild export app --to squashfs -o {file}"
    file.write_bytes(b"")
    os.truncate(file, 1 << 42)
    with pytest.raises(EnvbuildError, match="cannot be read"):
        check_image(image, "srun", at)
    file.unlink()  # a folder of compute nodes alone
    assert check_image(image, "srun", at) == image


def test_a_tag_that_is_moved_while_a_job_waits_is_refused(
    tmp_path: Path, registry: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    other, others, _ = built(tmp_path / "b", layers()[:1])
    publish(parts, artifacts, f"{registry.host}/app:moved")
    image = launched(parts, sha256, f"{registry.host}/app:moved")

    def run(*_: object) -> None:
        publish(other, others, f"{registry.host}/app:moved", move=True)

    monkeypatch.setattr(gpu_tiers, "run_node", run)
    monkeypatch.setattr(gpu_tiers, "job_form", lambda _: "sh")
    slurm = replace(site().slurm, enroot="3.5.0")
    prepared = Prepared(load_form("srun"), image, shipped_target("h100-ib"), Clients(slurm))
    with pytest.raises(EnvbuildError, match="another image than the one that is built here"):
        run_tier(job(), prepared, TierRequest("gpu"), workspace(tmp_path / "store"))
