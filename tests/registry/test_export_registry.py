"""Images of a registry as squashfs: straight from the socket, through broken connections, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from envbuild.core.console import RecordingReporter, SilentReporter
from envbuild.core.digest import file_digest
from envbuild.core.errors import ConflictError, InputError
from envbuild.export import pack_layers
from envbuild.export.squashfs_image import merge_lowest
from envbuild.oci.sources.open import open_source
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.store_packs import pack_path
from tests.support import foreign_images as kit
from tests.support import local_registry
from tests.support.cutting_proxy import cutting
from tests.support.foreign_images import made, workspace
from tests.support.foreign_images import no_pauses as no_pauses  # a fixture of every test here
from tests.support.local_registry import PASSWORD, USER, Layout, Server, sha256

pytestmark = pytest.mark.registry


def push_image(layout: Layout, registry: Server, name: str = "some/app:1", compression: str = "gzip") -> None:
    layout.add(kit.image(layout, kit.layers(), compression))
    registry.push(f"oci:{layout.path}", name)


def test_name_mode_and_origin_of_the_image(layout: Layout, registry: Server, tmp_path: Path) -> None:
    push_image(layout, registry)
    at = workspace(tmp_path / "store", docker=registry.url)
    done = made("docker://some/app:1", at)
    digest = json.loads((layout.path / "index.json").read_bytes())["manifests"][0]["digest"]
    assert done.origin == f"oci:docker.io/some/app@{digest}"
    assert done.artifact.path.name == f"app-1-{done.identity[7:19]}.sqsh"
    assert done.artifact.path.stat().st_mode & 0o777 == 0o644
    assert (done.artifact.path.parent / "app-1.sqsh").readlink() == Path(done.artifact.path.name)
    assert done.artifact.sha256 == sha256(done.artifact.path.read_bytes())
    assert [(layer.diff_id, layer.cached) for layer in done.layers] == [
        (f"sha256:{sha256(layer)}", False) for layer in kit.layers()
    ]
    assert all(layer.bytes for layer in done.layers)
    assert not list(at.store.tmp.iterdir())
    layers = {descriptor["digest"][7:] for descriptor in manifest_of(layout, digest)["layers"]}
    assert not layers & {path.name for path in (at.store.root / "blobs/sha256").iterdir()}
    assert any(line.startswith("USER alice is ignored") for line in done.artifact.messages)
    again = made("docker://some/app:1", at)
    assert again.up_to_date and again.artifact.sha256 == done.artifact.sha256


def manifest_of(layout: Layout, digest: str) -> dict:  # type: ignore[type-arg]
    return json.loads((layout.path / "blobs/sha256" / digest[7:]).read_bytes())  # type: ignore[no-any-return]


@pytest.mark.parametrize("compression", ["gzip", "zstd", "chunked", "none"])
def test_compressions_of_layers(compression: str, tmp_path: Path) -> None:
    """All give the bytes of the image whose layers are not compressed."""
    files = []
    for kind in ("none", compression):
        own = Layout(tmp_path / f"mirror-{kind}/some/app")
        own.add(kit.image(own, kit.layers(), kind), "1")
        at = workspace(tmp_path / f"store-{kind}", docker=str(tmp_path / f"mirror-{kind}"))
        files.append(made("docker://some/app:1", at).artifact.sha256)
    assert files[0] == files[1]


def test_contents_of_the_image(layout: Layout, registry: Server, tmp_path: Path) -> None:
    if shutil.which("unsquashfs") is None:
        pytest.skip("unsquashfs is not installed")
    push_image(layout, registry)
    done = made("docker://some/app:1", workspace(tmp_path / "store", docker=registry.url))
    root = tmp_path / "root"
    subprocess.run(["unsquashfs", "-q", "-n", "-d", root, done.artifact.path], check=True, stdout=subprocess.DEVNULL)
    assert (root / "data/noise").read_bytes() == kit.noise(3_000_000) and not (root / "secret").exists()
    assert (root / "etc/environment").read_text() == "PATH=/opt/tool/bin:/usr/bin:/bin\nWORDS=a b\n"
    assert (root / "etc/fstab").read_text() == (
        "${ENROOT_ROOTFS}/scratch /scratch none x-create=dir,bind,rw,nosuid,nodev\n"
    )
    script = (root / "etc/rc").read_text()
    assert script.startswith("# org.example.title tiny\n") and 'cd "/data"' in script
    assert "exec '/usr/bin/env' \"$@\"\n" in script
    assert "exec '/usr/bin/env' 'sh' '-c' 'echo it'\\''s started'\n" in script
    document = json.loads((root / "etc/envbuild/export.json").read_bytes())
    assert document["image"]["config"] == done.identity
    assert document["image"]["layers"] == [layer.diff_id for layer in done.layers]
    assert document["compression"]["codec"] == "zstd" and document["compression"]["library"].startswith("zstd-1.")
    assert document["repairs"] == list(done.artifact.messages)
    assert str(tmp_path) not in json.dumps(document) and registry.host not in json.dumps(document)


def test_cold_cached_and_jobs(layout: Layout, registry: Server, tmp_path: Path) -> None:
    push_image(layout, registry)
    at = workspace(tmp_path / "one", docker=registry.url)
    cold = made("docker://some/app:1", at, tmp_path / "cold.sqsh", jobs=1)
    warm = made("docker://some/app:1", at, tmp_path / "warm.sqsh", jobs=3)
    assert all(layer.cached for layer in warm.layers) and not any(layer.cached for layer in cold.layers)
    other = made("docker://some/app:1", workspace(tmp_path / "two", docker=registry.url), tmp_path / "n.sqsh", jobs=4)
    assert cold.artifact.sha256 == warm.artifact.sha256 == other.artifact.sha256
    straight = workspace(tmp_path / "three", docker=registry.url)
    direct = made("docker://some/app:1", straight, tmp_path / "direct.sqsh", cache=False)
    assert direct.artifact.sha256 == cold.artifact.sha256 and direct.artifact.messages == cold.artifact.messages
    assert not list((straight.store.root / "packs").iterdir())
    forms = [
        PackFormat("gzip", 6),
        PackFormat("lz4", 0),
        PackFormat("none", 0),
        PackFormat("zstd", 1),
        PackFormat("zstd", 3, 1 << 20),
    ]
    for form in forms:
        kept = made("docker://some/app:1", at, form=form).artifact
        thrown = made("docker://some/app:1", straight, tmp_path / kept.path.name, form=form, cache=False).artifact
        assert kept.sha256 == thrown.sha256 != cold.artifact.sha256
    assert len(list((at.store.root / "artifacts").glob("app-1-*.sqsh"))) == len(forms)


@pytest.mark.parametrize("little", [0, pack_layers.SMALL], ids=["merged after", "merged meanwhile"])
@pytest.mark.parametrize("there", ["001", "010", "011", "100", "101", "110"])
def test_some_layers_are_packed(
    there: str, little: int, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever they are, and whether the lowest are merged before the others are packed: the same file."""
    monkeypatch.setattr(pack_layers, "SMALL", little)
    layout.add(kit.image(layout, kit.layers()), "app:1")
    at = workspace(tmp_path / "store")
    cold = made(f"oci:{layout.path}:app:1", at, tmp_path / "cold.sqsh")
    for layer, kept in zip(cold.layers, there, strict=True):
        if kept == "0":
            pack_path(at.store, layer.diff_id, PackFormat()).unlink()
    early = [pack_path(at.store, layer.diff_id, PackFormat()) for layer in cold.layers[: f"{there}0".index("0")]]
    seen: list[list[Path]] = []
    monkeypatch.setattr(pack_layers, "merge_lowest", lambda paths: (seen.append(paths), merge_lowest(paths))[1])
    warm = made(f"oci:{layout.path}:app:1", at, tmp_path / "warm.sqsh")
    assert [layer.cached for layer in warm.layers] == [kept == "1" for kept in there]
    assert warm.artifact.sha256 == cold.artifact.sha256
    assert seen == [early if little else []]


def test_a_low_pack_is_damaged(layout: Layout, tmp_path: Path) -> None:
    """It is found when the layer above it is packed, and made again in the same run."""
    layout.add(kit.image(layout, kit.layers()), "app:1")
    at = workspace(tmp_path / "store")
    cold = made(f"oci:{layout.path}:app:1", at, tmp_path / "cold.sqsh")
    low, _, top = (pack_path(at.store, layer.diff_id, PackFormat()) for layer in cold.layers)
    whole = low.read_bytes()
    top.unlink()
    low.write_bytes(whole[:-1])
    warm = made(f"oci:{layout.path}:app:1", at, tmp_path / "warm.sqsh")
    assert warm.artifact.sha256 == cold.artifact.sha256 == file_digest(tmp_path / "warm.sqsh")
    assert low.read_bytes() == whole and top.is_file()


def test_connections_break(layout: Layout, registry: Server, tmp_path: Path) -> None:
    """In the middle of a layer the stream resumes where it broke off, in the same run."""
    push_image(layout, registry)
    want = made("docker://some/app:1", workspace(tmp_path / "plain", docker=registry.url)).artifact.sha256
    with cutting(registry.host) as cutter:
        cutter.cuts = [1_000_000, 200_000, 1]
        done = made("docker://some/app:1", workspace(tmp_path / "store", docker=cutter.url))
        assert done.artifact.sha256 == want and not cutter.cuts
        assert [header for _, header in cutter.asked if header] == [
            "bytes=1000000-",
            "bytes=1200000-",
            "bytes=1200001-",
        ]
        cutter.cuts, cutter.ranges = [1_000_000, 2_000_000], False
        done = made("docker://some/app:1", workspace(tmp_path / "other", docker=cutter.url))
        assert done.artifact.sha256 == want


def test_a_connection_that_always_breaks(layout: Layout, registry: Server, tmp_path: Path) -> None:
    push_image(layout, registry)
    with cutting(registry.host) as cutter:
        cutter.cuts = [0] * 50
        at = workspace(tmp_path / "store", docker=cutter.url)
        with pytest.raises(InputError, match="5 attempts") as caught:
            made("docker://some/app:1", at)
        assert cutter.url in caught.value.message and caught.value.exit_code == 10
        # the other layers are packed, and remain
        packs = [pack_path(at.store, f"sha256:{sha256(layer)}", PackFormat()) for layer in kit.layers()]
        assert [path.exists() for path in packs] == [True, False, True]
        cutter.cuts = []
        done = made("docker://some/app:1", at)
        assert [layer.cached for layer in done.layers] == [True, False, True]


def test_after_a_place_with_wrong_content_the_next_is_used(layout: Layout, registry: Server, tmp_path: Path) -> None:
    push_image(layout, registry)
    with cutting(registry.host) as cutter:
        cutter.wrong = True
        at = workspace(tmp_path / "store", docker=cutter.url)
        with pytest.raises(InputError) as caught:
            made("docker://some/app:1", at)
        assert caught.value.exit_code == 10 and "layer 2 of 3" in caught.value.message
        assert not list((at.store.root / "artifacts").iterdir())
        at.site.mirrors["oci:docker.io/"] = (cutter.url, registry.url)  # type: ignore[index]
        assert made("docker://some/app:1", at).artifact.size


def test_a_login(layout: Layout, private: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push_image(layout, private)
    at = workspace(tmp_path / "store")
    with pytest.raises(InputError, match="requires a login") as caught:
        made(f"docker://{private.host}/some/app:1", at)
    assert caught.value.hint == f"docker login {private.host}"
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    (tmp_path / "docker").mkdir()
    entry = {"username": USER, "password": PASSWORD}
    (tmp_path / "docker/config.json").write_text(json.dumps({"auths": {private.host: entry}}))
    done = made(f"docker://{private.host}#some/app:1", at)
    assert done.reference == f"docker://{private.host}/some/app:1"


def test_several_platforms(layout: Layout, registry: Server, tmp_path: Path) -> None:
    images = [kit.image(layout, kit.layers()[: 2 + number], architecture=arch) for number, arch in enumerate(ARCHES)]
    attestation = {**images[0], "platform": {"architecture": "unknown", "os": "unknown"}}
    layout.add(layout.index([attestation, *images]))
    registry.push(f"oci:{layout.path}", "some/app:1")
    at = workspace(tmp_path / "store", docker=registry.url)
    for arch, image in zip(ARCHES, images, strict=True):
        with open_source("docker://some/app:1", at.site, at.store, f"linux/{arch}") as found:
            assert found.manifest == image["digest"] and found.config.architecture == arch
            assert f"docker://{found.origin.removeprefix('oci:')}".endswith(image["digest"])
    with pytest.raises(ConflictError) as caught:
        made("docker://some/app:1", at, platform="linux/riscv64")
    assert caught.value.message.endswith("because it is made for linux/amd64, linux/arm64")
    assert caught.value.hint == "--platform linux/amd64"


ARCHES = ("amd64", "arm64")


def test_one_image_of_another_platform(tmp_path: Path) -> None:
    """Without --platform it is used, and named; another --platform is refused."""
    own = Layout(tmp_path / "layout")
    own.add(kit.image(own, kit.layers(), architecture="s390x"))
    at = workspace(tmp_path / "store")
    done = made(f"oci:{own.path}", at)
    assert any("the image is for linux/s390x, and this machine is" in line for line in done.artifact.messages)
    with pytest.raises(ConflictError, match="because it is made for linux/s390x"):
        made(f"oci:{own.path}", at, platform="linux/amd64")
    windows = Layout(tmp_path / "windows")
    windows.add(kit.image(windows, kit.layers(), os="windows"))
    with pytest.raises(ConflictError, match="because it is made for windows/amd64"):
        made(f"oci:{windows.path}", at)


def mirror_manifest(tmp_path: Path, manifest: bytes) -> str:
    """Return a mirror whose image ``some/app:1`` has that manifest."""
    own = Layout(tmp_path / "mirror/some/app")
    own.add(own.blob(manifest, local_registry.MANIFEST), "1")
    return str(tmp_path / "mirror")


def test_schema_1(tmp_path: Path) -> None:
    place = mirror_manifest(tmp_path, b'{"schemaVersion": 1, "name": "some/app", "fsLayers": [], "history": []}')
    with pytest.raises(InputError, match="manifest schema 1") as caught:
        made("docker://some/app:1", workspace(tmp_path / "store", docker=place))
    assert caught.value.exit_code == 10


def test_all_unavailable_layers_are_reported(tmp_path: Path) -> None:
    part = {"digest": f"sha256:{'0' * 64}", "size": 1}
    kinds = [
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
        "application/vnd.example.model",
        "application/vnd.oci.image.layer.v1.tar+gzip",
    ]
    value = {
        "schemaVersion": 2,
        "config": {**part, "mediaType": local_registry.CONFIG},
        "layers": [*({**part, "mediaType": kind} for kind in kinds), {**part, "mediaType": kinds[-1], "size": 0}],
    }
    place = mirror_manifest(tmp_path, json.dumps(value).encode())
    with pytest.raises(InputError) as caught:
        made("docker://some/app:1", workspace(tmp_path / "store", docker=place))
    messages = [finding.message for finding in caught.value.findings]
    assert len(messages) == 4 and "layer 5" in messages[3] and "has size 0 in the manifest" in messages[3]
    assert (
        "a foreign layer" in messages[0]
        and "is encrypted" in messages[1]
        and "application/vnd.example.model" in messages[2]
    )


def test_a_foreign_layer_is_exported_if_the_registry_has_it(tmp_path: Path) -> None:
    """A registry may have been given one all the same; `enroot import` takes it, too."""
    own = Layout(tmp_path / "mirror/some/app")
    plain = kit.image(own, kit.layers())
    manifest = manifest_of(own, plain["digest"])
    part = manifest["layers"][1]
    part |= {"mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "urls": ["https://x.example/1"]}
    own.add({**plain, **own.blob(json.dumps(manifest).encode(), local_registry.MANIFEST)}, "1")
    done = made("docker://some/app:1", workspace(tmp_path / "store", docker=str(tmp_path / "mirror")))
    assert len(done.layers) == 3
    (own.path / "blobs/sha256" / part["digest"][7:]).unlink()
    with pytest.raises(InputError, match="is a foreign layer") as caught:
        made("docker://some/app:1", workspace(tmp_path / "other", docker=str(tmp_path / "mirror")))
    assert "https://x.example/1" in caught.value.hint


@pytest.mark.parametrize("insecure", [True, False])
def test_a_transfer_that_is_not_encrypted_is_reported_once(
    insecure: bool, layout: Layout, registry: Server, tmp_path: Path
) -> None:
    push_image(layout, registry)
    at, reporter = workspace(tmp_path / "store", docker=registry.url), RecordingReporter(SilentReporter())
    host = urlsplit(registry.url).hostname or ""
    at = replace(at, reporter=reporter, site=replace(at.site, insecure_hosts=(host,) if insecure else ()))
    made("docker://some/app:1", at)
    assert [line for line in reporter.warnings if "not encrypted" in line] == (
        [f"the transfer from {host} is not encrypted (insecure_hosts of site.yaml, or trusted-host of pip)"]
        if insecure
        else []
    )


def test_by_digest_without_a_network(layout: Layout, registry: Server, tmp_path: Path) -> None:
    """A packed image named by digest needs no request."""
    push_image(layout, registry)
    at = workspace(tmp_path / "store", docker=registry.url)
    done = made("docker://some/app:1", at)
    pinned = f"docker://some/app@{done.origin.rpartition('@')[2]}"
    at.site.mirrors["oci:docker.io/"] = ("http://127.0.0.1:1",)  # type: ignore[index]
    assert made(pinned, at, tmp_path / "again.sqsh").artifact.sha256 == done.artifact.sha256


def test_missing_images(registry: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="app:none is not available") as caught:
        made("docker://some/app:none", workspace(tmp_path / "store", docker=registry.url))
    assert "HTTP 404" in caught.value.message and "skopeo list-tags docker://" in caught.value.hint
