"""Manifests and blobs of a repository, from folders of OCI layouts that a site has."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import InputError
from envbuild.net.failures import NotFoundError, RefusedError
from envbuild.net.registry.client import RegistryAddress, Repository
from envbuild.net.registry.layout_folder import LayoutFolder
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site import Site
from envbuild.net.transport import Transport

pytestmark = pytest.mark.unit

REF_NAME = "org.opencontainers.image.ref.name"


@cache
def transport() -> Transport:
    return Transport(Site(Path("/none")).network())


def add(folder: Path, *names: str, text: str = "") -> list[str]:
    """Add a manifest to a layout under each of `names` ("": without a name); return their digests."""
    (folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (folder / "oci-layout").write_text("{}")
    index = folder / "index.json"
    listed: list[dict[str, Any]] = json.loads(index.read_text())["manifests"] if index.exists() else []
    digests = []
    for name in names:
        content = json.dumps({"schemaVersion": 2, "name": text or name}).encode()
        digests.append(hashlib.sha256(content).hexdigest())
        (folder / "blobs/sha256" / digests[-1]).write_bytes(content)
        entry = {"digest": f"sha256:{digests[-1]}"}
        listed.append({**entry, "annotations": {REF_NAME: name}} if name else entry)
    index.write_text(json.dumps({"manifests": listed}))
    return digests


def repository(text: str, *mirrors: str, host: bool = False) -> Repository:
    found = parse_reference(text)
    sites = {f"{found.origin.partition('/')[0]}/": mirrors} if mirrors else {}
    return Repository(found, Site(Path("/none"), mirrors=sites, use_host=host), transport())


def test_a_manifest_by_digest_is_a_blob_of_the_layout(tmp_path: Path) -> None:
    (digest,) = add(tmp_path, "1")
    layout = LayoutFolder(tmp_path, ("1",), False)
    assert json.loads(layout.manifest(transport(), f"sha256:{digest}"))["name"] == "1"
    assert layout.blob(digest) == str(tmp_path / "blobs/sha256" / digest)
    with pytest.raises(NotFoundError):
        layout.manifest(transport(), f"sha256:{'0' * 64}")


def test_a_link_out_of_a_layout_is_not_one_of_its_blobs(tmp_path: Path) -> None:
    """A shared folder of images is a mirror; the digest of a file that only the caller reads would be in the error."""
    (digest,) = add(tmp_path / "layout", "1")
    (tmp_path / "secret").write_text("password")
    folder = tmp_path / "layout/blobs/sha256"
    (folder / ("0" * 64)).symlink_to(tmp_path / "secret")
    (folder / digest).rename(folder / "elsewhere")
    (folder / digest).symlink_to("elsewhere")
    layout = LayoutFolder(tmp_path / "layout", ("1",), False)
    with pytest.raises(NotFoundError):
        layout.manifest(transport(), f"sha256:{'0' * 64}")
    assert "a link out of the layout" in layout.blob("0" * 64)
    assert json.loads(layout.manifest(transport(), f"sha256:{digest}"))["name"] == "1"


@pytest.mark.parametrize("linked", ["blobs", "blobs/sha256"])
def test_a_layout_whose_blobs_are_elsewhere_has_none(tmp_path: Path, linked: str) -> None:
    (digest,) = add(tmp_path / "private", "1")
    layout = tmp_path / "layout"
    (layout / linked).parent.mkdir(parents=True)
    (layout / linked).symlink_to(tmp_path / "private" / linked)
    for name in ("oci-layout", "index.json"):
        (layout / name).write_bytes((tmp_path / "private" / name).read_bytes())
    for wanted in ("1", f"sha256:{digest}"):
        with pytest.raises(NotFoundError):
            LayoutFolder(layout, ("1",), False).manifest(transport(), wanted)


@pytest.mark.parametrize("digest", ["sha256:../../../secret", "../../../secret", "sha256:" + "A" * 64, ""])
def test_a_digest_that_is_a_path_is_malformed(tmp_path: Path, digest: str) -> None:
    """What is read by it would become a blob of the store, which other users may read."""
    add(tmp_path / "layout", "1")
    (tmp_path / "secret").write_text('{"manifests": []}')
    index = tmp_path / "layout/index.json"
    index.write_text(json.dumps({"manifests": [{"digest": digest, "annotations": {REF_NAME: "1"}}]}))
    layout = LayoutFolder(tmp_path / "layout", ("1",), False)
    with pytest.raises(RefusedError, match="malformed"):
        layout.manifest(transport(), "1")
    with pytest.raises(NotFoundError):
        layout.manifest(transport(), digest if digest.startswith("sha256:") else f"sha256:{digest}")


def test_a_damaged_manifest_is_refused_without_its_digest(tmp_path: Path) -> None:
    (digest,) = add(tmp_path, "1")
    (tmp_path / "blobs/sha256" / digest).write_text("{}")
    for wanted in ("1", f"sha256:{digest}"):
        with pytest.raises(RefusedError, match=r"damaged$"):
            LayoutFolder(tmp_path, ("1",), False).manifest(transport(), wanted)


def test_a_manifest_by_its_name(tmp_path: Path) -> None:
    add(tmp_path, "1", "2")
    for names, wanted in ((("2",), "2"), (("none", "1"), "1")):
        assert json.loads(LayoutFolder(tmp_path, names, False).manifest(transport(), "x"))["name"] == wanted
    for exclusive in (False, True):
        with pytest.raises(NotFoundError):
            LayoutFolder(tmp_path, ("3",), exclusive).manifest(transport(), "3")


def test_an_image_without_a_name_is_found_by_its_digest_alone(tmp_path: Path) -> None:
    """It was taken for each tag of its repository: a lock had its digest for a tag that does not exist."""
    (digest,) = add(tmp_path, "", text="only")
    for exclusive in (True, False):
        layout = LayoutFolder(tmp_path, ("1",), exclusive)
        assert json.loads(layout.manifest(transport(), f"sha256:{digest}"))["name"] == "only"
        with pytest.raises(NotFoundError, match="names no 1: its image without a name is found by its digest alone"):
            layout.manifest(transport(), "1")


def test_one_name_for_several_architectures_is_an_index(tmp_path: Path) -> None:
    """Two of one architecture, or of an unknown one, are two images: skopeo takes the first, containerd the last."""
    digests = add(tmp_path, "1", text="amd64") + add(tmp_path, "1", text="arm64")
    with pytest.raises(RefusedError, match="two images named 1"):
        LayoutFolder(tmp_path, ("1",), False).manifest(transport(), "1")
    index = json.loads((tmp_path / "index.json").read_text())
    for item, arch in zip(index["manifests"], ("amd64", "arm64"), strict=True):
        item["platform"] = {"os": "linux", "architecture": arch}
    (tmp_path / "index.json").write_text(json.dumps(index))
    found = json.loads(LayoutFolder(tmp_path, ("1",), False).manifest(transport(), "1"))
    assert [item["digest"] for item in found["manifests"]] == [f"sha256:{digest}" for digest in digests]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"manifests": 1}', '{"manifests": [1]}', '{"manifests": [{}]}'])
def test_a_malformed_index_and_a_folder_that_is_not_a_layout(text: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        LayoutFolder(tmp_path, ("1",), False).manifest(transport(), "1")
    (tmp_path / "oci-layout").write_text("{}")
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(RefusedError):
        LayoutFolder(tmp_path, ("1",), False).manifest(transport(), "1")


def test_places_are_those_of_the_site(tmp_path: Path) -> None:
    own, shared = repository("ghcr.io/a/b:1", str(tmp_path), "https://mirror.example/ghcr").places[:2]
    assert isinstance(own, LayoutFolder) and isinstance(shared, LayoutFolder)
    assert (own.path, own.exclusive, shared.path, shared.exclusive) == (tmp_path / "a/b", True, tmp_path, False)
    assert own.names == ("1", "ghcr.io/a/b:1", "a/b:1") and shared.names == own.names[1:]
    last = repository("ghcr.io/a/b:1", str(tmp_path), "https://mirror.example/ghcr").places[2]
    assert last == RegistryAddress("https://mirror.example", "ghcr/a/b")
    assert last.manifest_url("1") == "https://mirror.example/v2/ghcr/a/b/manifests/1"
    assert last.blob("ab") == "https://mirror.example/v2/ghcr/a/b/blobs/sha256:ab"


def test_the_registry_itself_is_a_place_unless_the_site_forbids_it() -> None:
    assert [str(place) for place in repository("ghcr.io/a/b:1", host=True).places] == ["https://ghcr.io/a/b"]
    assert [str(place) for place in repository("localhost:5000/b:1", host=True).places] == [
        "https://localhost:5000/b",
        "http://localhost:5000/b",
    ]
    with pytest.raises(InputError) as caught:
        _ = repository("ghcr.io/a/b:1").places
    assert caught.value.findings[0].mirror_lines


def test_the_digest_of_a_manifest_is_checked(tmp_path: Path) -> None:
    (digest,) = add(tmp_path / "a/b", "1")
    wanted = repository("ghcr.io/a/b:1", str(tmp_path))
    assert json.loads(wanted.manifest("1"))["name"] == "1"
    assert json.loads(wanted.manifest(f"sha256:{digest}"))["name"] == "1"
    (tmp_path / "a/b/blobs/sha256" / digest).write_text("{}")
    with pytest.raises(InputError):
        wanted.manifest(f"sha256:{digest}")
