"""Third-party images that are published with the squashfs file that `export` writes of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import InputError, PublishError, SpecError
from envbuild.core.store.build_records import PACK_VERSION
from envbuild.publish import compressed_layers, proved_layers
from envbuild.publish import publish_source as publish_source_module
from envbuild.publish.publish_source import publish_source
from tests.support import foreign_images
from tests.support.bit_flips import flip_bit
from tests.support.cutting_proxy import cutting
from tests.support.foreign_images import layers, workspace
from tests.support.image_project import Cli
from tests.support.local_registry import Layout, Server, serve, sha256, skopeo
from tests.support.published import pull
from tests.support.push_proxy import pushing
from tests.support.saved_image import write_saved_image

pytestmark = pytest.mark.registry
no_pauses = foreign_images.no_pauses


def export(source: str, folder: Path, **options: Any) -> str:
    """Return the sha256 of the file that `export` writes of a source, in a store of its own."""
    folder.mkdir()
    return foreign_images.made(source, workspace(folder / "store"), folder / "out.sqsh", **options).artifact.sha256


def send(source: str, to: str, store: Path, **options: Any) -> dict[str, Any]:
    return dict(publish_source(source, to, workspace(store), **options).data)


def manifest_of(name: str) -> dict[str, Any]:
    return dict(json.loads(skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{name}")))


def layout_of(folder: Path, compression: str = "gzip", **changes: Any) -> Layout:
    layout = Layout(folder)
    layout.add(foreign_images.image(layout, layers(), compression, **changes), "x")
    return layout


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_an_archive_of_docker_save(
    tmp_path: Path, registry: Server, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"docker-archive:{write_saved_image(tmp_path / 'app.tar', layers(), mode=mode)}"
    name = f"{registry.host}/team/app:1"
    made = send(source, name, tmp_path / "a")
    assert made["sha256"] == export(source, tmp_path / "e")
    assert pull(name, tmp_path / "b")["sha256"] == made["sha256"]
    found = manifest_of(name)
    assert {layer["mediaType"].rpartition("+")[2] for layer in found["layers"]} == {"gzip"}
    blobs = [gzip.decompress(registry.blob(layer["digest"][7:]).read_bytes()) for layer in found["layers"]]
    assert blobs == layers() and found["annotations"] == {"io.envbuild.squashfs": f"sha256:{made['sha256']}"}
    monkeypatch.setattr(compressed_layers, "compress_layer", None)
    again = send(source, name, tmp_path / "a")
    assert (again["sent"], again["digest"], again["squashfs"]) == (0, made["digest"], made["squashfs"])


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none", "chunked"])
def test_a_layout_keeps_its_blobs(tmp_path: Path, registry: Server, compression: str) -> None:
    layout = layout_of(tmp_path / "layout", compression)
    source, name = f"oci:{layout.path}:x", f"{registry.host}/app:1"
    made = send(source, name, tmp_path / "a")
    assert made["sha256"] == pull(name, tmp_path / "b")["sha256"] == export(source, tmp_path / "e")
    there = json.loads((layout.path / "blobs/sha256" / layout.listed[0]["digest"][7:]).read_bytes())
    found = manifest_of(name)
    assert [found["config"], found["layers"]] == [there["config"], there["layers"]]
    assert not {layer["digest"][7:] for layer in there["layers"]} & {
        path.name for path in (tmp_path / "a/blobs/sha256").iterdir()
    }
    pinned = pull(f"{registry.host}/app@{made['digest']}", tmp_path / "b")
    assert (pinned["sha256"], pinned["squashfs"]) == (made["sha256"], made["squashfs"])


def test_an_image_of_another_registry_is_streamed(tmp_path: Path, registry: Server) -> None:
    """Also where the connection to the source breaks: the part that was sent is not the blob."""
    layout = layout_of(tmp_path / "layout")
    with serve(tmp_path / "other") as other, cutting(other.host) as source:
        skopeo("copy", "--dest-tls-verify=false", f"oci:{layout.path}:x", f"docker://{other.host}/their/app:2")
        reference = f"docker://{source.url.removeprefix('http://')}/their/app:2"
        expected = export(reference, tmp_path / "e")
        source.cuts, source.least = [], 1_000_000
        send(reference, f"{registry.host}/first:1", tmp_path / "a")
        source.asked.clear()
        source.cuts = [100_000, 700_000]
        made = send(reference, f"{registry.host}/team/app", tmp_path / "a")  # the packs are there, the blobs are not
        assert made["reference"] == f"{registry.host}/team/app:2" and made["sent"] == 0
        with serve(tmp_path / "third") as third:
            made = send(reference, f"{third.host}/team/app", tmp_path / "a")
            assert made["sha256"] == expected and not source.cuts
            assert any(wanted for _, wanted in source.asked)
            assert pull(f"{third.host}/team/app:2", tmp_path / "b")["sha256"] == expected
    large = max((path.stat().st_size for path in (tmp_path / "a/blobs/sha256").iterdir()), default=0)
    assert large < 10_000  # the manifest and the configuration


def test_a_registry_copies_the_layers_itself(tmp_path: Path, registry: Server) -> None:
    layout = layout_of(tmp_path / "layout")
    with pushing(registry.host) as proxy:
        host = proxy.url.removeprefix("http://")
        skopeo("copy", "--dest-tls-verify=false", f"oci:{layout.path}:x", f"docker://{host}/their/app:2")
        proxy.asked.clear()
        made = send(f"docker://{host}/their/app:2", f"{host}/team/app:1", tmp_path / "a")
        large = [size for size in proxy.sent("PUT") if size > 100_000]
        assert len(large) == 1 and made["sha256"] == pull(f"{host}/team/app:1", tmp_path / "b")["sha256"]  # its pack
        asked = [path for method, path, _ in proxy.asked if method == "GET" and "/their/app/blobs/" in path]
        assert len(asked) == len(set(asked)) == 4  # each layer once, for its pack, and the configuration


def test_docker_s_media_types_become_oci_s(tmp_path: Path, registry: Server) -> None:
    layout = layout_of(tmp_path / "layout")
    skopeo(
        "copy",
        "--format=v2s2",
        "--dest-tls-verify=false",
        f"oci:{layout.path}:x",
        f"docker://{registry.host}/docker:1",
    )
    there = manifest_of(f"{registry.host}/docker:1")
    assert "docker" in there["layers"][0]["mediaType"]
    made = send(f"docker://{registry.host}/docker:1", f"{registry.host}/app:1", tmp_path / "a")
    found = manifest_of(f"{registry.host}/app:1")
    assert "docker" not in json.dumps(found) and found["config"]["digest"] == there["config"]["digest"]
    assert [item["digest"] for item in found["layers"]] == [item["digest"] for item in there["layers"]]
    assert pull(f"{registry.host}/app:1", tmp_path / "b")["sha256"] == made["sha256"]


def test_layers_are_compressed_again_on_request(tmp_path: Path, registry: Server) -> None:
    layout = layout_of(tmp_path / "layout")
    name = f"{registry.host}/app:1"
    made = send(f"oci:{layout.path}:x", name, tmp_path / "a", compression="zstd")
    found = manifest_of(name)
    assert {layer["mediaType"].rpartition("+")[2] for layer in found["layers"]} == {"zstd"}
    assert made["sha256"] == export(f"docker://{name}", tmp_path / "e")


def test_one_image_of_an_index(tmp_path: Path, registry: Server) -> None:
    layout = Layout(tmp_path / "layout")
    images = [foreign_images.image(layout, layers(), architecture=arch) for arch in ("amd64", "arm64")]
    layout.add(layout.index(images), "x")
    source, name = f"oci:{layout.path}:x", f"{registry.host}/app:1"
    made = send(source, name, tmp_path / "a", platform="linux/arm64")
    assert made["sha256"] == export(source, tmp_path / "e", platform="arm64")
    assert pull(name, tmp_path / "b")["sha256"] == made["sha256"]
    with pytest.raises(PublishError) as caught:
        send(source, name, tmp_path / "a", platform="amd64")
    assert caught.value.exit_code == 8 and "--move" in caught.value.hint


def test_a_folder_and_the_whole_file(tmp_path: Path) -> None:
    layout = layout_of(tmp_path / "layout")
    there = tmp_path / "shared"
    made = send(f"oci:{layout.path}:x", f"oci:{there}", tmp_path / "a", whole=True)
    assert made["reference"] == f"oci:{there}:x"
    file = there / "blobs/sha256" / made["sha256"]
    assert sha256(file.read_bytes()) == made["sha256"] == pull(f"oci:{there}:x", tmp_path / "b")["sha256"]
    assert send(f"oci:{layout.path}:x", f"oci:{there}", tmp_path / "a", whole=True)["sent"] == 0


def test_a_source_that_changed_since_it_was_packed_leaves_no_tag(tmp_path: Path, registry: Server) -> None:
    layout = layout_of(tmp_path / "layout")
    send(f"oci:{layout.path}:x", f"oci:{tmp_path}/first", tmp_path / "a")
    manifest = json.loads((layout.path / "blobs/sha256" / layout.listed[0]["digest"][7:]).read_bytes())
    blob = layout.path / "blobs/sha256" / manifest["layers"][1]["digest"][7:]
    content = blob.read_bytes()
    for wrong in (content[:1000] + b"wrong" + content[1005:], content[:-10]):
        blob.write_bytes(wrong)
        for to in (f"{registry.host}/app:1", f"oci:{tmp_path}/second"):
            with pytest.raises(InputError, match=r"layer 2 of 3 of oci:.* is damaged") as caught:
                send(f"oci:{layout.path}:x", to, tmp_path / "a")
            assert caught.value.exit_code == 10
    assert not (registry.root / "docker/registry/v2/repositories/app/_manifests").exists()
    assert not (tmp_path / "second/index.json").exists()
    archive = write_saved_image(tmp_path / "app.tar", layers())
    send(f"docker-archive:{archive}", f"oci:{tmp_path}/third:1", tmp_path / "a")
    archive.write_bytes(archive.read_bytes().replace(b"text\n", b"TEXT\n"))
    with pytest.raises(InputError, match=r"layer 3 of 3 .* is damaged"):
        send(f"docker-archive:{archive}", f"oci:{tmp_path}/fourth:1", tmp_path / "a")


def test_a_missing_pack_is_written_again(tmp_path: Path) -> None:
    source = f"oci:{layout_of(tmp_path / 'layout').path}:x"
    made = send(source, f"oci:{tmp_path}/first", tmp_path / "a")
    for pack in (tmp_path / "a/packs").glob(f"*.v{PACK_VERSION}"):
        pack.unlink()
    assert send(source, f"oci:{tmp_path}/second", tmp_path / "a")["squashfs"] == made["squashfs"]


def test_the_command(tmp_path: Path, registry: Server) -> None:
    cli, name = Cli(tmp_path, tmp_path / "a"), f"{registry.host}/app:1"
    layout = layout_of(tmp_path / "layout")
    made = cli.json("publish", f"oci:{layout.path}:x", "--to", name)
    assert cli.json("pull", name)["sha256"] == made["sha256"]
    for words, code, text in (
        (["docker-daemon:app:1", "--to", name], 2, "docker save -o image.tar app:1"),
        ([f"oci:{layout.path}:x"], 2, "--to REGISTRY/REPOSITORY"),
        (["cpu-ucx", "--to", name, "--platform", "arm64"], 2, "an image of the project"),
        ([f"oci:{layout.path}:y", "--to", name], 10, "no image with that name"),
        ([f"oci:{layout.path}:x", "--to", name, "--platform", "arm64"], 3, "no image for linux/arm64"),
        ([str(tmp_path / "missing.tar"), "--to", name], 10, "no file or folder"),
    ):
        done = cli.run("publish", *words, check=False)
        assert done.returncode == code and text in done.stderr, done.stderr


def test_an_architecture_that_no_reader_accepts_is_refused(tmp_path: Path) -> None:
    layout = layout_of(tmp_path / "layout", architecture="am d64")
    with pytest.raises(InputError, match="not a plain name"):
        send(f"oci:{layout.path}:x", f"oci:{tmp_path}/out", tmp_path / "a")
    with pytest.raises(SpecError):
        send("docker-daemon:app", f"oci:{tmp_path}/out", tmp_path / "a")


def packed_image(layout: Layout, plain: list[bytes], contents: list[bytes]) -> None:
    """Add an image with the layers `plain` by its configuration, and blobs of `contents` by its manifest."""
    named = foreign_images.image(layout, plain)
    manifest = json.loads((layout.path / "blobs/sha256" / named["digest"][7:]).read_bytes())
    kind = manifest["layers"][0]["mediaType"]
    manifest["layers"] = [layout.blob(gzip.compress(content, mtime=0), kind) for content in contents]
    layout.add({**named, **layout.blob(json.dumps(manifest).encode(), named["mediaType"])}, "x")


def test_no_layer_is_published_of_which_the_image_has_no_blob(tmp_path: Path, registry: Server) -> None:
    """The digests of a private image's layers are public: another image names them, with blobs of its own."""
    plain, store = layers(), tmp_path / "a"
    foreign_images.made(f"oci:{layout_of(tmp_path / 'private').path}:x", workspace(store), tmp_path / "private.sqsh")
    other = Layout(tmp_path / "other")
    packed_image(other, plain, [plain[0], *(b"no tar" for _ in plain[1:])])
    with pytest.raises(InputError) as caught:
        send(f"oci:{other.path}:x", f"{registry.host}/pub/other:1", store)
    assert len(caught.value.findings) == len(plain) - 1
    assert not (registry.root / "docker/registry/v2/repositories/pub").exists()
    archive = write_saved_image(tmp_path / "app.tar", plain)
    assert send(f"docker-archive:{archive}", f"{registry.host}/pub/own:1", store)["sent"]


def test_a_layer_is_compared_once_for_each_repository(
    tmp_path: Path, registry: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, store, compared = layout_of(tmp_path / "layout"), tmp_path / "a", list[int]()
    for name in ("one", "two"):
        registry.push(f"oci:{layout.path}:x", f"{name}:1")
    send(f"oci:{layout.path}:x", f"{registry.host}/app:1", store)
    read_all = proved_layers.read_all
    monkeypatch.setattr(
        proved_layers,
        "read_all",
        lambda image, wanted, known: compared.append(len(wanted)) or read_all(image, wanted, known),
    )
    for name in ("one", "two", "one"):
        send(f"docker://{registry.host}/{name}:1", f"{registry.host}/copy-of-{name}:1", store, move=True)
    assert compared == [len(layers())] * 2
    send(f"oci:{layout.path}:x", f"{registry.host}/app:2", store)  # a folder may have changed
    assert len(compared) == 3


def test_a_blob_that_is_known_to_be_a_layer_is_read_and_not_unpacked(
    tmp_path: Path, registry: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was compared before, from another place; the folder must have its bytes all the same."""
    layout, store = layout_of(tmp_path / "layout"), tmp_path / "a"
    registry.push(f"oci:{layout.path}:x", "one:1")
    foreign_images.made(f"oci:{layout.path}:x", workspace(store))
    send(f"docker://{registry.host}/one:1", f"{registry.host}/copy:1", store)
    monkeypatch.setattr(proved_layers, "read_layer", lambda *_: pytest.fail("it was unpacked"))
    assert send(f"oci:{layout.path}:x", f"{registry.host}/app:1", store)["digest"]
    damaged = next(path for path in (layout.path / "blobs/sha256").iterdir() if path.read_bytes()[:2] == b"\x1f\x8b")
    flip_bit(damaged, 20, 3)
    with pytest.raises(InputError, match="damaged: its blob"):
        send(f"oci:{layout.path}:x", f"{registry.host}/app:2", store)


@pytest.mark.parametrize("lacks", ["layers", "configuration"])
@pytest.mark.parametrize("published", [False, True])
def test_a_source_that_has_only_the_digests_of_a_private_image_gets_none_of_it_published(
    tmp_path: Path, registry: Server, lacks: str, published: bool
) -> None:
    """Neither from the store, nor by a registry that has the blobs in another repository."""
    layout, store = layout_of(tmp_path / "private"), tmp_path / "a"
    registry.push(f"oci:{layout.path}:x", "team/private:1")
    source = f"docker://{registry.host}/team/private:1"
    if published:
        send(source, f"{registry.host}/team/private:2", store)
    else:
        foreign_images.made(source, workspace(store), tmp_path / "private.sqsh", keep_layers=True)
    with serve(tmp_path / "evil") as evil:
        evil.push(f"oci:{layout.path}:x", "tool:1")
        found = manifest_of(f"{evil.host}/tool:1")
        for item in found["layers"] if lacks == "layers" else [found["config"]]:
            evil.blob(item["digest"][7:]).unlink()
        for to in (f"{registry.host}/pub/tool:1", f"oci:{tmp_path}/out"):
            with pytest.raises(InputError):
                send(f"docker://{evil.host}/tool:1", to, store)
    assert not (registry.root / "docker/registry/v2/repositories/pub").exists()
    assert not any((tmp_path / "out").rglob("sha256/*"))


def test_a_blob_that_was_not_read_is_not_recorded_as_compared(tmp_path: Path, registry: Server) -> None:
    """The record of an earlier conversion ends `convert` before it reads anything."""
    plain, store = layers(), tmp_path / "a"
    private = f"oci:{layout_of(tmp_path / 'private').path}:x"
    foreign_images.made(private, workspace(store))
    other = Layout(tmp_path / "other")
    packed_image(other, plain, [plain[0], *(b"no tar" for _ in plain[1:])])
    foreign_images.made(f"oci:{other.path}:x", workspace(store))
    for pack in (store / "packs").iterdir():
        pack.unlink()
    for _ in range(2):
        with pytest.raises(InputError):
            send(f"oci:{other.path}:x", f"{registry.host}/pub/other:1", store)
        foreign_images.made(private, workspace(store), tmp_path / "again.sqsh")
    assert not (registry.root / "docker/registry/v2/repositories/pub").exists()


def test_a_pack_that_another_command_wrote_meanwhile_is_compared(
    tmp_path: Path, registry: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source decides how long the conversion takes, and so how long there is time for that."""
    plain, store = layers(), tmp_path / "a"
    private = f"oci:{layout_of(tmp_path / 'private').path}:x"
    other = Layout(tmp_path / "other")
    packed_image(other, plain, [plain[0], *(b"no tar" for _ in plain[1:])])
    convert = publish_source_module.convert_open_image

    def convert_later(*arguments: Any) -> Any:
        foreign_images.made(private, workspace(store), tmp_path / "private.sqsh")
        return convert(*arguments)

    monkeypatch.setattr(publish_source_module, "convert_open_image", convert_later)
    with pytest.raises(InputError):
        send(f"oci:{other.path}:x", f"{registry.host}/pub/other:1", store)
    assert not (registry.root / "docker/registry/v2/repositories/pub").exists()
