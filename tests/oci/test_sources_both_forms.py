"""Archives with Docker's manifest.json and an OCI layout: both must name the same image."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from envbuild.core.errors import InputError
from envbuild.oci.sources import oci_layout
from envbuild.oci.sources.open import open_source
from envbuild.oci.sources.platform import Platform
from envbuild.publish.remote_image import open_remote
from tests.support.foreign_images import document, image, workspace
from tests.support.local_registry import Layout, file, tar
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit
NAMES = {"io.containerd.image.name": "docker.io/library/app:1", "org.opencontainers.image.ref.name": "1"}


def layer(word: bytes) -> list[bytes]:
    return [tar(file("etc/which", word))]


def write_archive(
    path: Path,
    words: list[bytes],
    annotations: list[dict[str, str]],
    listed: list[tuple[bytes, list[str]]],
    mode: str,
    change: Mapping[str, Any] = MappingProxyType({}),
    link: bytes = b"",
) -> Path:
    """Write an archive: a layout with an image of each of `words`, and manifest.json with those of `listed`.
    link: type of a member by which manifest.json is another name of a file."""
    layout = Layout(path.parent / "layout")
    for number, word in enumerate(words):
        layout.add(image(layout, layer(word)), str(number))
    index = json.loads((layout.path / "index.json").read_text())
    for item, names in zip(index["manifests"], annotations, strict=True):
        item |= {"annotations": names, **change}
    (layout.path / "index.json").write_text(json.dumps(index))
    entries: list[dict[str, Any]] = []
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]

        def add(name: str, content: bytes) -> None:
            found = tarfile.TarInfo(name)
            found.size = len(content)
            archive.addfile(found, io.BytesIO(content))

        for part in sorted(layout.path.rglob("*")):
            if part.is_file():
                archive.add(part, str(part.relative_to(layout.path)))
        for number, (word, tags) in enumerate(listed):
            content = json.dumps(document(layer(word))).encode()
            name = f"{number}-{hashlib.sha256(content).hexdigest()}.json"
            add(name, content)
            add(f"{number}/layer.tar", layer(word)[0])
            entries.append({"Config": name, "RepoTags": tags, "Layers": [f"{number}/layer.tar"]})
        add("m.json" if link else "manifest.json", json.dumps(entries).encode())
        if link:
            other = tarfile.TarInfo("manifest.json")
            other.type, other.linkname = link, "m.json"
            archive.addfile(other)
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("names", [NAMES, {"org.opencontainers.image.ref.name": "1"}, {}])
def test_an_archive_of_two_images_is_refused(tmp_path: Path, mode: str, names: dict[str, str]) -> None:
    at = workspace(tmp_path / "store")
    two = write_archive(tmp_path / "two.tar", [b"B"], [names], [(b"A", ["app:1"])], mode)
    with (
        pytest.raises(InputError, match=r"is two images: manifest\.json has"),
        open_source(f"docker-archive:{two}", at.site, at.store),
    ):
        pass


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_link_is_docker_s_form_too(tmp_path: Path, mode: str, kind: bytes) -> None:
    """Docker and skopeo follow it."""
    at = workspace(tmp_path / "store")
    two = write_archive(tmp_path / "two.tar", [b"B"], [NAMES], [(b"A", ["app:1"])], mode, link=kind)
    with (
        pytest.raises(InputError, match=r"is two images: manifest\.json has"),
        open_source(f"docker-archive:{two}", at.site, at.store),
    ):
        pass


def test_docker_s_oldest_form_beside_a_layout_is_refused(tmp_path: Path) -> None:
    """`docker load` reads it where manifest.json is missing."""
    at, layout = workspace(tmp_path / "store"), Layout(tmp_path / "layout")
    layout.add(image(layout, layer(b"B")), "1")
    for older in (False, True):
        with tarfile.open(tmp_path / "app.tar", "w") as archive:
            archive.add(layout.path, ".")
            if older:
                archive.addfile(tarfile.TarInfo("repositories"))
        error = pytest.raises(InputError, match="may be two images: it has 'repositories'")
        with (
            error if older else contextlib.nullcontext(),
            open_source(f"docker-archive:{tmp_path}/app.tar", at.site, at.store) as found,
        ):
            assert len(found.layers) == 1


FALLBACK = {**NAMES, "org.opencontainers.image.ref.name": f"sha256-{'0' * 64}"}


@pytest.mark.parametrize("change", [{"artifactType": "application/x"}, {"annotations": FALLBACK}])
def test_what_calls_itself_an_artifact_is_compared_by_its_name(tmp_path: Path, change: dict[str, Any]) -> None:
    """containerd uses the name all the same."""
    at = workspace(tmp_path / "store")
    two = write_archive(tmp_path / "two.tar", [b"B"], [NAMES], [(b"A", ["app:1"])], "w", change)
    with (
        pytest.raises(InputError, match="is two images"),
        open_source(f"docker-archive:{two}", at.site, at.store),
    ):
        pass


def test_either_name_of_an_entry_counts(tmp_path: Path) -> None:
    """skopeo reads the one, containerd the other."""
    at = workspace(tmp_path / "store")
    names = {"io.containerd.image.name": "docker.io/library/other:1", "org.opencontainers.image.ref.name": "app:1"}
    two = write_archive(tmp_path / "two.tar", [b"B"], [names], [(b"A", ["app:1"])], "w")
    with (
        pytest.raises(InputError, match="is two images"),
        open_source(f"docker-archive:{two}", at.site, at.store),
    ):
        pass


@pytest.mark.parametrize(
    ("tag", "names", "change"),
    [
        ("index.docker.io/library/app:1", NAMES, {}),
        ("library/app:1", NAMES, {}),
        ("other:1", NAMES, {}),
        ("app:1", NAMES, {"platform": {"os": "linux", "architecture": "arm64"}}),
    ],
)
def test_an_image_that_is_in_the_layout_alone_is_refused(
    tmp_path: Path, tag: str, names: dict[str, str], change: dict[str, Any]
) -> None:
    """skopeo takes it by its place or by the tag alone, containerd by the name. Its configuration has the architecture
    of this machine, also where the index calls it another one."""
    at = workspace(tmp_path / "store")
    two = write_archive(tmp_path / "two.tar", [b"B"], [names], [(b"A", [tag])], "w", change)
    with (
        pytest.raises(InputError, match="is two images"),
        open_source(f"docker-archive:{two}", at.site, at.store),
    ):
        pass


def test_an_archive_of_very_many_manifests_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the one that other programs read could be behind those that are compared."""
    at = workspace(tmp_path / "store")
    one = write_archive(tmp_path / "one.tar", [b"A"], [NAMES], [(b"A", ["app:1"])], "w")
    for most in (1, 0):
        monkeypatch.setattr("envbuild.oci.sources.both_forms.MAX_MANIFESTS", most)
        error = contextlib.nullcontext() if most else pytest.raises(InputError, match="more than 0 manifests")
        with error, open_source(f"docker-archive:{one}", at.site, at.store):
            pass


@pytest.mark.parametrize(
    ("stated", "nested", "message"),
    [
        ("linux/arm64", False, "has an image for linux/amd64 that index.json calls one for linux/arm64"),
        ("windows/amd64", False, "has an image for linux/amd64 that index.json calls one for windows/amd64"),
        ("linux/arm64", True, "has an index of images that index.json calls one for linux/arm64"),
    ],
)
def test_entries_of_one_name_have_the_platform_of_their_image(
    tmp_path: Path, stated: str, nested: bool, message: str
) -> None:
    """skopeo takes the first one."""
    at, layout = workspace(tmp_path / "store"), Layout(tmp_path / "layout")
    system, arch = stated.split("/")
    other = {**image(layout, layer(b"B")), "platform": {"os": "linux", "architecture": "amd64"}}
    if nested:
        other = layout.index([other])
    layout.add({**other, "platform": {"os": system, "architecture": arch}}, "1")
    layout.add({**image(layout, layer(b"A")), "platform": {"os": "linux", "architecture": "amd64"}}, "1")
    with pytest.raises(InputError) as opened, open_source(f"oci:{layout.path}:1", at.site, at.store):
        pass
    with pytest.raises(InputError) as remote:
        found = open_remote(f"oci:{layout.path}:1", at.site)
        assert found
        found.find(Platform.of("amd64"))
    assert message in opened.value.message and message in remote.value.message


def test_many_entries_of_one_name_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them may name a manifest of 16 MiB, which is read once."""
    at, layout, reads = workspace(tmp_path / "store"), Layout(tmp_path / "layout"), list[str]()
    read = oci_layout.read_document

    def note(files: Any, digest: str, reference: str) -> bytes:
        reads.append(digest)
        return read(files, digest, reference)

    monkeypatch.setattr(oci_layout, "read_document", note)
    one = image(layout, layer(b"A"))
    for number in range(100):
        layout.add({**one, "platform": {"os": "linux", "architecture": f"a{number}" if number else "amd64"}}, "1")
    source = f"oci:{layout.path}:1"
    with pytest.raises(InputError, match="calls one for linux/a1"), open_source(source, at.site, at.store):
        pass
    assert len(reads) == 2  # manifest and configuration
    layout.add({**one, "platform": {"os": "linux", "architecture": "b"}}, "1")
    with pytest.raises(InputError, match="101 images of one name"), open_source(source, at.site, at.store):
        pass
    assert len(reads) == 2


@pytest.mark.parametrize("before", [b"", b" ", b"\n\t\r "])
def test_documents_of_a_compressed_archive_may_begin_with_blanks(tmp_path: Path, before: bytes) -> None:
    """They were read in the compressed bytes then, at the same places."""
    at = workspace(tmp_path / "store")
    content, config = layer(b"A")[0], before + json.dumps(document(layer(b"A"))).encode()
    listed = before + json.dumps([{"Config": "c.json", "RepoTags": ["app:1"], "Layers": ["l.tar"]}]).encode()
    for mode in ("w", "w:gz"):
        with tarfile.open(tmp_path / "a.tar", mode) as archive:  # type: ignore[call-overload]
            for name, part in (("l.tar", content), ("c.json", config), ("manifest.json", listed)):
                found = tarfile.TarInfo(name)
                found.size = len(part)
                archive.addfile(found, io.BytesIO(part))
        with open_source(f"docker-archive:{tmp_path}/a.tar", at.site, at.store) as made:
            assert made.identity == f"sha256:{hashlib.sha256(config).hexdigest()}"


def test_a_folder_and_a_file_of_one_name_in_a_compressed_archive_are_no_fault(tmp_path: Path) -> None:
    at = workspace(tmp_path / "store")
    with tarfile.open(tmp_path / "a.tar", "w:gz") as archive:
        for kind in (tarfile.REGTYPE, tarfile.DIRTYPE):
            found = tarfile.TarInfo("manifest.json")
            found.type = kind
            archive.addfile(found)
    with pytest.raises(InputError), open_source(f"docker-archive:{tmp_path}/a.tar", at.site, at.store):
        pass


def test_a_name_that_no_file_has_is_refused_at_once(tmp_path: Path) -> None:
    """33 kB of names of many folders took an hour."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("d/" * 300_000 + "f"))
    (tmp_path / "a.tar").write_bytes(content.getvalue())
    at = workspace(tmp_path / "store")
    with (
        ends_within(20),
        pytest.raises(InputError, match="contains a name of"),
        open_source(f"docker-archive:{tmp_path}/a.tar", at.site, at.store),
    ):
        pass


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("names", [NAMES, {"org.opencontainers.image.ref.name": "app:1"}, {}])
def test_an_archive_of_both_forms_of_an_image_is_read(tmp_path: Path, mode: str, names: dict[str, str]) -> None:
    at = workspace(tmp_path / "store")
    one = write_archive(tmp_path / "one.tar", [b"A"], [names], [(b"A", ["app:1"])], mode)
    for tag in ("", ":app:1"):
        with open_source(f"docker-archive:{one}{tag}", at.site, at.store) as found:
            assert len(found.layers) == 1


def test_only_the_image_that_is_named_is_compared(tmp_path: Path) -> None:
    at = workspace(tmp_path / "store")
    other = {"io.containerd.image.name": "docker.io/library/b:1", "org.opencontainers.image.ref.name": "1"}
    both = [(b"A", ["app:1"]), (b"B", ["b:1"])]
    path = write_archive(tmp_path / "a.tar", [b"A", b"B"], [NAMES, other], both, "w")
    for tag in ("app:1", "b:1"):
        with open_source(f"docker-archive:{path}:{tag}", at.site, at.store) as found:
            assert len(found.layers) == 1
    (tmp_path / "x").mkdir()
    exchanged = write_archive(tmp_path / "x/a.tar", [b"B", b"A"], [NAMES, other], both, "w")
    with (
        pytest.raises(InputError, match="is two images"),
        open_source(f"docker-archive:{exchanged}:b:1", at.site, at.store),
    ):
        pass
