"""Archives of images: their names, and the files in them."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.oci.sources.archive import find_entry, index_archive, open_archive
from envbuild.oci.sources.platform import Platform

pytestmark = pytest.mark.unit


def test_an_archive_s_names(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name, content in (("./a/layer.tar", b"1"), ("../evil", b"2")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for name, target in (("b/layer.tar", "../a/layer.tar"), ("loop", "loop"), ("out", "../../etc/passwd")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
    archive = index_archive(path)
    assert archive.read("b/layer.tar") == b"1" and archive.real("b/layer.tar") == "a/layer.tar"
    for name in ("loop", "out", "none", "/etc/passwd"):
        with pytest.raises(InputError, match="is not in it"):
            archive.read(name)


@pytest.mark.parametrize(("first", "second"), [("l.tar", "./l.tar"), ("l.tar", "l.tar"), ("link", "l.tar")])
def test_a_file_that_an_archive_has_twice_is_refused(tmp_path: Path, first: str, second: str) -> None:
    """podman takes the first one, Docker the second."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for number, name in enumerate((first, second)):
            info = tarfile.TarInfo("l.tar" if name == "link" else name)
            if name == "link":
                info.type, info.linkname = tarfile.SYMTYPE, "other.tar"
            info.size = 0 if name == "link" else 1
            tar.addfile(info, io.BytesIO(b"%d" % number))
    with pytest.raises(InputError, match=r"contains two files called 'l\.tar'"):
        index_archive(path)


@pytest.mark.parametrize("kind", [*(bytes([letter]) for letter in b"8NVDMAZ"), tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_a_special_file_in_an_archive_is_refused(tmp_path: Path, kind: bytes) -> None:
    """Go's archive/tar, so podman and skopeo, take an unknown type for a regular file of its name."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("manifest.json")
        info.type = kind
        tar.addfile(info)
    with pytest.raises(InputError, match="which is a special file"):
        index_archive(path)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("BZh91AY&SY", "is compressed with bzip2"),
        ("\udcfd7zXZ", "is compressed with xz"),
        ("P*M\x18", "begins with a skippable frame of zstd"),
    ],
)
def test_the_first_name_in_an_archive_may_be_the_magic_of_another_kind(tmp_path: Path, name: str, why: str) -> None:
    """Docker and skopeo know compressed archives by these bytes."""
    path = tmp_path / "app.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:  # no extended header before it
        tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(InputError, match=why), open_archive(path, "", Platform.of("")):
        pass


def test_a_list_of_images_has_its_keys_in_their_letters() -> None:
    """Docker and podman take the last of both."""
    content = b'[{"Config": "a.json", "config": "b.json", "RepoTags": ["app:1"], "Layers": []}]'
    with pytest.raises(InputError, match="which other clients read as Config"):
        find_entry(content, "", "docker-archive:a.tar")


@pytest.mark.parametrize(
    ("names", "tag", "found"),
    [
        (["app:1", "localhost/app:1"], "app:1", 0),
        (["localhost/app:1", "x.io/app:1"], "app:1", 0),
        (["x.io/app:1", "other:1"], "app:1", 0),
        (["docker.io/library/app:latest", "app:1"], "app", 0),
        (["app:1", "docker.io/library/app:1"], "app:1", None),
        (["app:1", "docker.io/library/app:1"], "docker.io/library/app:1", None),
        (["library/app:1", "app:1"], "app:1", None),
        (["index.docker.io/library/app:1", "app:1"], "app:1", None),
        (["index.docker.io/app:1", "docker.io/library/app:1"], "app:1", None),
        (["x.io/app:1", "y.io/app:1"], "app:1", None),
    ],
)
def test_a_whole_name_is_taken_before_a_longer_one(names: list[str], tag: str, found: int | None) -> None:
    """Two that are one name for Docker are none: the last one counts there."""
    listed = [{"Config": f"{number}.json", "RepoTags": [name], "Layers": []} for number, name in enumerate(names)]
    content = json.dumps(listed).encode()
    if found is None:
        with pytest.raises(InputError, match="has no unique image with that name"):
            find_entry(content, tag, "docker-archive:a.tar")
    else:
        assert find_entry(content, tag, "docker-archive:a.tar").value == listed[found]
