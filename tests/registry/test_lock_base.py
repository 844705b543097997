"""Base images locked against a real registry, and against folders."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import ConflictError, InputError
from envbuild.core.store.store import Store
from envbuild.lock.model import BaseImage
from envbuild.net.site import Site
from tests.support import local_registry as kit
from tests.support.local_registry import Layout, Lock, Server, folder, metadata, symlink, tar

pytestmark = pytest.mark.registry
PYTHON = "usr/lib/python3/dist-packages"


def push_base(layout: Layout, server: Server, *layers: bytes, name: str = "some/base:1", **rest: str) -> str:
    """Push an image of `layers`; its manifest's digest as skopeo left it."""
    layout.listed.clear()
    layout.add(layout.image(layers or (kit.system(),), env=["A=1", "B=x=y"], **rest))  # type: ignore[arg-type]
    server.push(f"oci:{layout.path}", name)
    return json.loads(kit.skopeo("inspect", "--tls-verify=false", *creds(server), f"docker://{server.host}/{name}"))[
        "Digest"
    ].removeprefix("sha256:")


def creds(server: Server) -> list[str]:
    return [f"--creds={server.login}"] if server.login else []


def test_an_image_by_a_mirror(layout: Layout, registry: Server, lock: Lock, store: Store) -> None:
    digest = push_base(layout, registry)
    found = lock("docker.io/some/base:1", registry.url)
    assert found.image.reference == "docker.io/some/base:1"
    assert found.image.digest == digest
    assert found.image.env == {"A": "1", "B": "x=y"}
    assert found.image.distribution == "debian:13"
    assert found.image.python == {"legacy": "2.0", "numpy": "1.26", "old-thing": "1.0"}
    assert found.status == kit.STATUS
    assert found.interpreter == "/usr/bin/python3.13"
    assert found.created == 1759276800
    assert all(store.has_blob(sha256) for sha256, _, _ in found.image.layers)
    assert store.has_blob(found.image.config) and store.has_blob(digest)
    assert [kind for _, _, kind in found.image.layers] == ["application/vnd.oci.image.layer.v1.tar+gzip"]


def test_official_images_of_docker_have_a_short_name(layout: Layout, registry: Server, lock: Lock) -> None:
    digest = push_base(layout, registry, name="library/debian:13")
    assert lock("docker.io/debian:13", registry.url).image.digest == digest


def test_the_registry_itself_on_the_loopback(layout: Layout, registry: Server, lock: Lock, store: Store) -> None:
    digest = push_base(layout, registry)
    site = Site(store.root)
    assert lock(f"{registry.host}/some/base:1", site=site).image.digest == digest
    assert lock(f"{registry.host}/some/base@sha256:{digest}", site=site).image.digest == digest
    with pytest.raises(InputError, match="no place is known for oci:127"):
        lock(f"{registry.host}/some/base:1", site=Site(store.root, use_host=False))


def test_a_closed_site_does_not_contact_docker_s_registry(lock: Lock, store: Store) -> None:
    with pytest.raises(InputError) as caught:
        lock("docker.io/library/debian:13", site=Site(store.root, use_host=False))
    assert caught.value.message == "no place is known for oci:docker.io/library/debian"
    assert 'mirrors: {"oci:docker.io/": [ADDRESS-OR-FOLDER]}' in caught.value.hint


def test_docker_s_own_manifests(layout: Layout, registry: Server, lock: Lock) -> None:
    layout.add(layout.image([kit.system()]))
    registry.push(f"oci:{layout.path}", "some/base:1", "--format=v2s2")
    found = lock("docker.io/some/base:1", registry.url)
    assert [kind for _, _, kind in found.image.layers] == ["application/vnd.docker.image.rootfs.diff.tar.gzip"]
    assert found.image.python["numpy"] == "1.26"


def test_zstd(layout: Layout, registry: Server, lock: Lock) -> None:
    digest = push_base(layout, registry, compression="zstd")
    found = lock("docker.io/some/base:1", registry.url)
    assert found.image.digest == digest and found.image.layers[0][2].endswith("+zstd")
    assert found.image.python == {"legacy": "2.0", "numpy": "1.26", "old-thing": "1.0"}


@pytest.mark.parametrize(("compression", "kind"), [("none", ".tar"), ("chunked", "+zstd")])
def test_compressions_that_skopeo_does_not_leave_alone(tmp_path: Path, lock: Lock, compression: str, kind: str) -> None:
    own = Layout(tmp_path / "mirror/some/base")
    own.add(own.image([kit.system()], compression=compression), "1")
    found = lock("docker.io/some/base:1", str(tmp_path / "mirror"))
    assert found.image.layers[0][2].endswith(kind) and found.image.python["numpy"] == "1.26"


def test_an_index_of_two_architectures(layout: Layout, registry: Server, lock: Lock) -> None:
    images = [layout.image([kit.system(), tar(kit.file(f"is-{arch}"))], arch=arch) for arch in ("amd64", "arm64")]
    attestation = {**images[0], "platform": {"architecture": "unknown", "os": "unknown"}}
    index = layout.index([attestation, *images])
    layout.add(index)
    registry.push(f"oci:{layout.path}", "some/base:1")
    digests = {arch: lock("docker.io/some/base:1", registry.url, arch=arch).image.digest for arch in ("amd64", "arm64")}
    assert digests == {
        arch: image["digest"].removeprefix("sha256:") for arch, image in zip(digests, images, strict=True)
    }
    pinned = f"docker.io/some/base@{index['digest']}"
    assert lock(pinned, registry.url, arch="arm64").image.digest == digests["arm64"]
    # The digest of a lock for another target is not used.
    before = lock("docker.io/some/base:1", registry.url).image
    assert lock("docker.io/some/base:1", registry.url, arch="arm64", previous=before).image.digest == digests["arm64"]


def test_a_variant_that_not_every_processor_has_is_not_the_base(tmp_path: Path, lock: Lock) -> None:
    """`export`, skopeo and Docker take the plain one, too, also behind the other one."""
    own = Layout(tmp_path / "mirror/some/base")
    newer, plain = (own.image([kit.system(), tar(kit.file(name))]) for name in ("v3", "plain"))
    platform = {"architecture": "amd64", "os": "linux"}
    listed = [{**newer, "platform": {**platform, "variant": "v3"}}, {**plain, "platform": platform}]
    own.add(own.index(listed), "1")
    found = lock("docker.io/some/base:1", str(tmp_path / "mirror")).image.digest
    assert f"sha256:{found}" == plain["digest"]


def test_an_index_of_indexes(tmp_path: Path, lock: Lock) -> None:
    own = Layout(tmp_path / "mirror/some/base")
    image = own.image([kit.system()])
    index: Any = own.index([image])
    for _ in range(3):
        index = own.index([index])
    own.add(index, "1")
    found = lock("docker.io/some/base:1", str(tmp_path / "mirror")).image.digest
    assert f"sha256:{found}" == image["digest"]
    own.listed.clear()
    own.add(own.index([index]), "1")
    with pytest.raises(InputError, match="is an index of indexes"):
        lock("docker.io/some/base:1", str(tmp_path / "mirror"))


@pytest.mark.parametrize("stored", [True, False])
def test_a_base_with_a_foreign_layer_is_refused_even_if_it_is_stored(
    stored: bool, tmp_path: Path, lock: Lock, store: Store
) -> None:
    own = Layout(tmp_path / "mirror/some/base")
    plain = own.image([kit.system()])
    blobs = own.path / "blobs/sha256"
    manifest = json.loads((blobs / plain["digest"][7:]).read_bytes())
    layer = manifest["layers"][0]
    layer["urls"] = ["https://its.publisher.example/1"]
    own.add({**plain, **own.blob(json.dumps(manifest).encode(), kit.MANIFEST)}, "1")
    path = blobs / layer["digest"][7:]
    if stored:
        store.add_blob(shutil.copy(path, tmp_path / "layer"))
    else:
        path.unlink()
    with pytest.raises(InputError, match="foreign layer: only its publisher may distribute sha256:") as caught:
        lock("docker.io/some/base:1", str(tmp_path / "mirror"))
    assert "choose a base image without such layers" in caught.value.hint


def test_no_image_for_the_architecture(layout: Layout, registry: Server, lock: Lock) -> None:
    push_base(layout, registry)
    layout.listed.clear()
    layout.add(layout.index([layout.image([kit.system()])]))
    registry.push(f"oci:{layout.path}", "some/base:index")
    for tag in ("1", "index"):
        with pytest.raises(ConflictError) as caught:
            lock(f"docker.io/some/base:{tag}", registry.url, arch="arm64")
        assert caught.value.message == (
            f"docker.io/some/base:{tag} has no image for linux/arm64, because it is made for linux/amd64"
        )


def test_contents_that_later_layers_delete(layout: Layout, registry: Server, lock: Lock) -> None:
    second = tar(
        kit.file(f"{PYTHON}/.wh.Old_Thing-1.0.dist-info"),
        metadata(PYTHON, "new", "3.0"),
        metadata("opt/gone", "x", "1"),
        folder("opt/tools/bin"),
        kit.file("opt/tools/bin/nvcc", b"", 0o755),
        symlink("usr/local/cuda", "/opt/tools"),
    )
    third = tar(
        kit.file("opt/tools/bin/other"),
        kit.file("opt/tools/bin/.wh..wh..opq"),
        kit.file(".wh..wh.plnk"),
        kit.file(".wh..wh.aufs/deep"),
        # what a link leads to is where the file is
        kit.file("usr/local/cuda/include/cuda.h"),
    )
    push_base(layout, registry, kit.system(), second, third)
    reference = "docker.io/some/base:1"
    promised = (("cuda", "/usr/local/cuda*/bin/nvcc"), ("x", "/opt/tools/include/*.h"), ("y", "/.wh*"))
    with pytest.raises(ConflictError) as caught:
        lock(reference, registry.url, promised=promised)
    assert [finding.message for finding in caught.value.findings] == [
        f"layer '{recipe}' is incompatible with this image: it uses the component of {reference}, which has "
        f"no {pattern}"
        for recipe, pattern in (promised[0], promised[2])
    ]
    found = lock(reference, registry.url, promised=(("cuda", "/usr/local/cuda/bin/oth*"),))
    assert found.image.python == {"legacy": "2.0", "new": "3.0", "numpy": "1.26"}


def test_all_faults_are_reported_together(layout: Layout, registry: Server, lock: Lock) -> None:
    alpine = tar(
        kit.file("etc/os-release", b"ID=alpine\nVERSION_ID=3.22\n"),
        kit.file("bin/sh"),
        kit.file("opt/conda/bin/python3.8"),
        kit.file("usr/bin/python3.12"),
        kit.file("usr/bin/python3.12-config"),
    )
    push_base(layout, registry, alpine)
    with pytest.raises(ConflictError) as caught:
        lock("docker.io/some/base:1", registry.url, promised=(("nccl", "/usr/include/nccl.h"),))
    assert [
        (finding.message.removeprefix("docker.io/some/base:1 "), finding.hint) for finding in caught.value.findings
    ] == [
        (
            "is not debian:13, as the spec declares: its os-release names alpine:3.22",
            "choose an image of one of: debian:12, debian:13, ubuntu:20.04, ubuntu:22.04, ubuntu:24.04",
        ),
        (
            "nothing can be installed on docker.io/some/base:1: it has no /var/lib/dpkg/status, /usr/bin/dpkg, "
            "/usr/bin/apt-get",
            "choose an image with apt: not a distroless, Alpine or RPM one",
        ),
        (
            "has no Python 3.13: it has /usr/bin/python3.12, /opt/conda/bin/python3.8",
            'write python: "3.12"',
        ),
        (
            "layer 'nccl' is incompatible with this image: it uses the component of docker.io/some/base:1, "
            "which has no /usr/include/nccl.h",
            "choose another provider of 'nccl', or a base that contains it",
        ),
    ]


def test_another_release_of_the_distribution(layout: Layout, registry: Server, lock: Lock) -> None:
    push_base(layout, registry, kit.system(), tar(kit.os_release("ubuntu", "24.04")))
    with pytest.raises(ConflictError) as caught:
        lock("docker.io/some/base:1", registry.url)
    assert caught.value.message.endswith("its os-release names ubuntu:24.04")
    assert caught.value.hint == "write distribution: ubuntu:24.04"
    assert lock("docker.io/some/base:1", registry.url, distribution="ubuntu:24.04").image.distribution == "ubuntu:24.04"


def test_a_python_of_its_own(layout: Layout, registry: Server, lock: Lock) -> None:
    """As the images called python have it: below /usr/local, beside the distribution's."""
    site = "usr/local/lib/python3.12/site-packages"
    own = tar(
        kit.file("usr/local/bin/python3.12", b"", 0o755),
        symlink("usr/local/bin/python3", "python3.12"),
        metadata(site, "torch", "2.9.0a0+145a3a7"),
        folder(f"{site}/no_metadata-4.5.dist-info"),
    )
    push_base(layout, registry, kit.system(), own)
    found = lock("docker.io/some/base:1", registry.url, python="3.12")
    assert found.interpreter == "/usr/local/bin/python3.12"
    assert found.image.python == {"torch": "2.9.0a0+145a3a7", "no-metadata": "4.5"}
    debian = lock("docker.io/some/base:1", registry.url)
    assert debian.interpreter == "/usr/bin/python3.13" and "torch" not in debian.image.python


def test_a_tag_that_moved(layout: Layout, registry: Server, lock: Lock) -> None:
    first = push_base(layout, registry)
    before = lock("docker.io/some/base:1", registry.url).image
    second = push_base(layout, registry, kit.system(), tar(kit.file("new")))
    assert first != second
    assert lock("docker.io/some/base:1", registry.url, previous=before).image == before
    assert lock("docker.io/some/base:1", registry.url).image.digest == second
    push_base(layout, registry, name="some/base:2")
    assert lock("docker.io/some/base:2", registry.url, previous=before).image.reference == "docker.io/some/base:2"


def test_an_image_that_was_removed(layout: Layout, registry: Server, lock: Lock, store: Store) -> None:
    gone = BaseImage("docker.io/some/base:1", "1" * 64, "2" * 64, (), "debian:13")
    push_base(layout, registry)
    with pytest.raises(InputError) as caught:
        lock("docker.io/some/base:1", registry.url, previous=gone)
    assert caught.value.message == (
        f"the image docker.io/some/base@sha256:{'1' * 64} is not available; tried:\n"
        f"  {registry.url}/some/base: HTTP 404"
    )
    assert 'mirrors: {"oci:docker.io/": [ADDRESS-OR-FOLDER]}' in caught.value.hint
    with pytest.raises(InputError, match=r"docker\.io/library/other:latest is not available"):
        lock("docker.io/other", registry.url)


def test_blobs_that_were_tampered_with(layout: Layout, registry: Server, lock: Lock, store: Store) -> None:
    push_base(layout, registry)
    image = lock("docker.io/some/base:1", registry.url).image
    digest, size, _ = image.layers[0]
    content = registry.blob(digest).read_bytes()
    store.blob(digest).unlink()
    registry.blob(digest).write_bytes(bytes(size))
    with pytest.raises(InputError) as caught:
        lock("docker.io/some/base:1", registry.url)
    assert f"a part of the image docker.io/some/base:1 (sha256 {digest})" in caught.value.message
    assert "digest mismatch" in caught.value.message
    assert not store.has_blob(digest)
    registry.blob(digest).write_bytes(content)
    assert lock("docker.io/some/base:1", registry.url).image == image
    store.blob(image.digest).unlink()
    manifest = registry.blob(image.digest)
    manifest.write_bytes(manifest.read_bytes().replace(b'"schemaVersion"', b' "schemaVersion"'))
    with pytest.raises(InputError, match="is not available"):
        lock("docker.io/some/base:1", registry.url, previous=image)


def test_a_store_that_is_damaged(layout: Layout, registry: Server, lock: Lock, store: Store) -> None:
    push_base(layout, registry)
    image = lock("docker.io/some/base:1", registry.url).image
    digest = image.layers[0][0]
    for path in (store.root / "base").iterdir():
        path.unlink()
    store.blob(digest).write_bytes(b"\x1f\x8b and no more")
    with pytest.raises(InputError, match="corrupt blob in the store"):
        lock("docker.io/some/base:1", registry.url)
    assert lock("docker.io/some/base:1", registry.url).image == image


def test_the_recorded_file_list_is_used_again(layout: Layout, registry: Server, lock: Lock, store: Store) -> None:
    push_base(layout, registry, kit.system(), tar(kit.file("odd\udcff", b""), symlink("loop", "loop")))
    first = lock("docker.io/some/base:1", registry.url)
    store.blob(first.image.layers[0][0]).write_bytes(b"nobody reads it again")
    again = lock("docker.io/some/base:1", registry.url, promised=(("x", "/odd*"),))
    assert again == first
    with pytest.raises(ConflictError):
        lock("docker.io/some/base:1", registry.url, promised=(("x", "/loop"),))


# folders
@pytest.fixture
def copied_layout(layout: Layout, tmp_path: Path) -> Iterator[Path]:
    """Folders with layouts: own/ by skopeo with a tag, bare/ without, all/ one for every repository."""
    layout.add(layout.image([kit.system()]))
    for name in ("own/some", "bare/some"):
        (tmp_path / name).mkdir(parents=True)
    kit.skopeo("copy", f"oci:{layout.path}", f"oci:{tmp_path}/own/some/base:1")
    kit.skopeo("copy", f"oci:{layout.path}", f"oci:{tmp_path}/bare/some/base")
    kit.skopeo("copy", f"oci:{layout.path}", f"oci:{tmp_path}/all:docker.io/some/base:1")
    return tmp_path


@pytest.mark.parametrize("name", ["own", "bare", "all"])
def test_layouts(copied_layout: Path, lock: Lock, layout: Layout, name: str) -> None:
    digest = layout.listed[0]["digest"]
    pinned = lock(f"docker.io/some/base@{digest}", str(copied_layout / name)).image
    if name == "bare":  # it could be any tag
        with pytest.raises(InputError, match="names no 1: its image without a name is found by its digest alone"):
            lock("docker.io/some/base:1", str(copied_layout / name))
        return
    found = lock("docker.io/some/base:1", str(copied_layout / name)).image
    assert (f"sha256:{found.digest}", found.python) == (digest, pinned.python)


def test_layouts_with_other_content(copied_layout: Path, lock: Lock) -> None:
    for name, reference in (("own", "some/base:2"), ("all", "other/base:1"), ("bare", "some:1")):
        with pytest.raises(InputError, match="is not available; tried:\n"):
            lock(f"docker.io/{reference}", str(copied_layout / name))


def test_one_tag_for_two_architectures_in_a_layout(layout: Layout, tmp_path: Path, lock: Lock) -> None:
    own = Layout(tmp_path / "mirror/some/base")
    images = {arch: own.image([kit.system(), tar(kit.file(arch))], arch=arch) for arch in ("amd64", "arm64")}
    for image in images.values():
        own.add(image, "1")
    for arch, image in images.items():
        found = lock("docker.io/some/base:1", str(tmp_path / "mirror"), arch=arch)
        assert found.image.digest == image["digest"].removeprefix("sha256:")


def test_the_next_place_is_tried(copied_layout: Path, layout: Layout, lock: Lock, store: Store) -> None:
    """A folder without it, a port without a server, then a good one."""
    places = (str(copied_layout / "nothing"), "http://127.0.0.1:9", str(copied_layout / "own"))
    site = Site(store.root, mirrors={"oci:docker.io/some": places})
    with pytest.raises(InputError, match=r"127\.0\.0\.1:9/base: connection refused"):
        lock("docker.io/some/base:1", site=site)
    (copied_layout / "own/base").symlink_to("some/base")
    assert lock("docker.io/some/base:1", site=site).image.python["numpy"] == "1.26"


def test_blobs_are_readable_by_all_users(layout: Layout, registry: Server, lock: Lock, store: Store) -> None:
    push_base(layout, registry)
    image = lock("docker.io/some/base:1", registry.url).image
    for digest in (image.digest, image.config, image.layers[0][0]):
        assert stat.S_IMODE(store.blob(digest).stat().st_mode) == 0o644
