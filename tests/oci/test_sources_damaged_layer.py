"""The error of a damaged layer has a hint: fetch or save it again, or have its author push it again."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from envbuild.core.errors import InputError
from envbuild.oci.sources import blob_stream as blobs
from envbuild.oci.sources.read_layer import read_layer
from tests.support import foreign_images, tars
from tests.support.foreign_images import made, workspace
from tests.support.local_registry import Layout, sha256
from tests.support.tars import Recorder, source

pytestmark = pytest.mark.unit

TAR = tars.file(b"noise", foreign_images.noise(300_000)) + tars.END
PACKED = {
    "gzip": gzip.compress(TAR, 1),
    "zstd": zstandard.compress(TAR),
    "zstd with a sum": zstandard.ZstdCompressor(write_checksum=True).compress(TAR),
    "plain": TAR,
}


def flipped(content: bytes, at: int = 0) -> bytes:
    """Some bytes changed in the middle, or at a place."""
    at = at or len(content) // 2
    return content[:at] + bytes(byte ^ 0x5A for byte in content[at : at + 8]) + content[at + 8 :]


def refused(function: Callable[[], object]) -> InputError:
    with pytest.raises(InputError) as caught:
        function()
    assert len(caught.value.findings) == 1 and caught.value.hint
    return caught.value


@pytest.mark.parametrize("form", PACKED)
def test_flipped_bytes_are_the_blob_s_damage(form: str) -> None:
    """At any place: in the first block, in the middle, in the checksum at the end; after any number of bytes."""
    blob = PACKED[form]
    for at in (20, len(blob) // 2, len(blob) - 8):
        wrong = flipped(blob, at)
        layer = replace(source(wrong, TAR, digest=f"sha256:{sha256(blob)}"), image="oci:/images/app")
        error = refused(lambda layer=layer: read_layer(layer, [Recorder()]))  # type: ignore[misc]
        assert error.message == (
            f"layer 1 of 1 of oci:/images/app is damaged: its blob is sha256:{sha256(wrong)}, "
            f"and its image names sha256:{sha256(blob)}"
        )
        assert error.hint.startswith("fetch or copy the layout again")


@pytest.mark.parametrize("form", PACKED)
def test_bytes_that_are_missing(form: str) -> None:
    blob = PACKED[form]
    layer = source(blob[: len(blob) // 2], TAR, digest=f"sha256:{sha256(blob)}", size=len(blob))
    message = refused(lambda: read_layer(layer, [Recorder()])).message
    assert f"it has {len(blob) // 2} bytes, and its image names {len(blob)}" in message
    assert message.startswith("layer 1 of 1 is damaged: ")


@pytest.mark.parametrize("form", ["gzip", "zstd with a sum"])
def test_a_layer_that_was_damaged_before_the_push(form: str) -> None:
    wrong = flipped(PACKED[form])
    error = refused(lambda: read_layer(source(wrong, TAR), [Recorder()]))
    assert error.message.startswith(f"layer 1 of 1 is malformed: it is sha256:{sha256(wrong)}, as its image names")
    assert error.hint.startswith("use another image or tag")


@pytest.mark.parametrize("form", PACKED)
def test_without_a_digest_of_the_blob(form: str) -> None:
    """In an archive of `docker save` only the tar has one."""
    for at in (20, len(PACKED[form]) // 2):
        layer = replace(source(flipped(PACKED[form], at), TAR), digest="", image="docker-archive:a.tar")
        error = refused(lambda layer=layer: read_layer(layer, [Recorder()]))  # type: ignore[misc]
        assert error.message.startswith("layer 1 of 1 of docker-archive:a.tar is damaged: it")
        assert ("its tar is sha256:" in error.message) == (form in ("plain", "zstd"))
        assert error.hint.startswith("save or copy the archive again")
    evil = tars.file(b"../../evil", b"x") + tars.END
    message = refused(lambda: read_layer(replace(source(evil, evil), digest=""), [Recorder()])).message
    assert "is malformed: it is sha256:" in message and "evil" in message


@pytest.mark.parametrize("form", [*PACKED])
def test_a_path_that_linux_cannot_open_is_no_damage(form: str) -> None:
    """The layer is what its author built: to push it again does not help."""
    tar = tars.pax((b"path", b"top/" + b"deep/" * 1000 + b"x")) + tars.file(b"x") + tars.END
    blob = {"plain": tar, "gzip": gzip.compress(tar)}.get(form, zstandard.compress(tar))
    for digest in ("", f"sha256:{sha256(blob)}"):
        error = refused(lambda digest=digest: read_layer(source(blob, tar, digest=digest), [Recorder()]))  # type: ignore[misc]
        assert error.message.startswith("layer 1 of 1 cannot be used: the path 'top/deep/deep/")
        assert error.message.endswith("has 5005 bytes, and Linux allows 4095 (PATH_MAX)")
        assert "push" not in error.hint and "/top" in error.hint
    with_damage = replace(source(flipped(blob, 30), tar, digest=f"sha256:{sha256(blob)}"), image="oci:/images/app")
    assert "is damaged: its blob is" in refused(lambda: read_layer(with_damage, [Recorder()])).message


# whole images
def foreign(layout: Layout, number: int = 1) -> Path:
    """Add an image whose layer `number` is a foreign one; return the file of its blob."""
    plain = foreign_images.image(layout, foreign_images.layers())
    manifest = json.loads((layout.path / "blobs/sha256" / plain["digest"][7:]).read_bytes())
    part = manifest["layers"][number]
    part["mediaType"] = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
    part["urls"] = ["https://publisher.example/layer"]
    layout.add({**plain, **layout.blob(json.dumps(manifest).encode(), plain["mediaType"])})
    return layout.path / "blobs/sha256" / part["digest"][7:]


@pytest.mark.slow_unit
def test_a_foreign_layer_is_exported_if_the_layout_has_it(tmp_path: Path) -> None:
    layout, plain = Layout(tmp_path / "layout"), Layout(tmp_path / "plain")
    blob = foreign(layout)
    plain.add(foreign_images.image(plain, foreign_images.layers()))
    done = [made(f"oci:{item.path}", workspace(tmp_path / "store")) for item in (layout, plain)]
    assert done[0].artifact.sha256 == done[1].artifact.sha256
    content = blob.read_bytes()
    blob.write_bytes(flipped(content))
    message = refused(lambda: made(f"oci:{layout.path}", workspace(tmp_path / "other"))).message
    assert f"is damaged: its blob is sha256:{sha256(flipped(content))}" in message
    blob.unlink()
    error = refused(lambda: made(f"oci:{layout.path}", workspace(tmp_path / "other")))
    assert "layer 2 of" in error.message and "is a foreign layer" in error.message and blob.name in error.message
    assert "https://publisher.example/layer" in error.hint


def damage(layout: Layout, number: int = 1) -> str:
    """Flip bytes in the stored blob of a layer; return its digest."""
    index = json.loads((layout.path / "index.json").read_bytes())
    manifest = json.loads((layout.path / "blobs/sha256" / index["manifests"][0]["digest"][7:]).read_bytes())
    digest: str = manifest["layers"][number]["digest"]
    path = layout.path / "blobs/sha256" / digest[7:]
    path.write_bytes(flipped(path.read_bytes()))
    return digest


def image(place: Path, compression: str = "gzip") -> Layout:
    layout = Layout(place)
    layout.add(foreign_images.image(layout, foreign_images.layers(), compression), "1")
    return layout


@pytest.mark.slow_unit
@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
@pytest.mark.parametrize("cache", [True, False])
def test_a_layout(compression: str, cache: bool, tmp_path: Path) -> None:
    layout = image(tmp_path / "layout", compression)
    digest = damage(layout)
    at = workspace(tmp_path / "store")
    error = refused(lambda: made(f"oci:{layout.path}", at, tmp_path / "out.sqsh", cache=cache))
    assert error.message.startswith(f"layer 2 of 3 of oci:{layout.path} is damaged: its blob is sha256:")
    assert error.message.endswith(f"and its image names {digest}") and "skopeo copy" in error.hint
    assert not [path for path in tmp_path.iterdir() if "out.sqsh" in path.name]


@pytest.mark.slow_unit
@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_registry(compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs.RegistryBlob.__init__, "__defaults__", (0, 0.01))
    digest = damage(image(tmp_path / "mirror/some/app", compression))
    at = workspace(tmp_path / "store", docker=str(tmp_path / "mirror"))
    error = refused(lambda: made("docker://some/app:1", at))
    assert error.message.startswith("layer 2 of 3 of docker://docker.io/some/app:1 is damaged: its blob is sha256:")
    assert error.message.endswith(f"and its image names {digest}") and "run the command again" in error.hint


@pytest.mark.slow_unit
@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_an_archive(compression: str, ending: str, tmp_path: Path) -> None:
    """Docker's form, with layers compressed or not, as a file or packed again."""
    contents = foreign_images.layers()
    pack = {"gzip": gzip.compress, "zstd": zstandard.compress, "none": bytes}[compression]
    blobs = [pack(content) for content in contents]  # type: ignore[operator]
    blobs[1] = flipped(blobs[1])
    config = json.dumps(foreign_images.document(contents)).encode()
    names = [f"{number}/layer.tar" for number in range(3)]
    listed = json.dumps([{"Config": "config.json", "RepoTags": ["app:1"], "Layers": names}]).encode()
    path = tmp_path / f"app.tar{ending}"
    with tarfile.open(path, "w:gz" if ending else "w") as tar:  # type: ignore[call-overload]
        for name, content in [("config.json", config), *zip(names, blobs, strict=True), ("manifest.json", listed)]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    error = refused(lambda: made(f"docker-archive:{path}", workspace(tmp_path / "store")))
    assert error.message.startswith(f"layer 2 of 3 of docker-archive:{path} is damaged: it")
    assert "docker save" in error.hint


@pytest.mark.slow_unit
def test_a_packed_archive_that_is_damaged_itself(tmp_path: Path) -> None:
    layout = image(tmp_path / "layout")
    path = tmp_path / "app.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for item in sorted(layout.path.iterdir()):
            tar.add(item, item.name)
    path.write_bytes(flipped(path.read_bytes()))
    error = refused(lambda: made(str(path), workspace(tmp_path / "store")))
    assert "is damaged" in error.message and ("docker save" in error.hint)


@pytest.mark.slow_unit
def test_a_damaged_layer_in_a_registry(tmp_path: Path) -> None:
    """The manifest names the damaged blob by its own digest and size."""
    layout = Layout(tmp_path / "layout")
    contents = foreign_images.layers()
    plain = foreign_images.image(layout, contents)
    manifest = json.loads((layout.path / "blobs/sha256" / plain["digest"][7:]).read_bytes())
    part = manifest["layers"][1]
    wrong = flipped((layout.path / "blobs/sha256" / part["digest"][7:]).read_bytes())
    manifest["layers"][1] = layout.blob(wrong, part["mediaType"])
    layout.add({**plain, **layout.blob(json.dumps(manifest).encode(), plain["mediaType"])})
    error = refused(lambda: made(f"oci:{layout.path}", workspace(tmp_path / "store")))
    assert "layer 2 of 3 of oci:" in error.message and "is malformed: it is sha256:" in error.message
    assert hashlib.sha256(wrong).hexdigest() in error.message and error.hint.startswith("use another image or tag")
