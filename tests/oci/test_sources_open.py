"""Names of images, and their documents: nothing here is opened over a network."""

from __future__ import annotations

import inspect
import io
import json
import os
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.core.errors import ConflictError, InputError, SpecError
from envbuild.core.late_import import import_object
from envbuild.core.text import duration, passed
from envbuild.export.options import ExportOptions
from envbuild.oci import manifest as m
from envbuild.oci.document import Part
from envbuild.oci.manifest import BlobDescriptor
from envbuild.oci.sources import image_documents
from envbuild.oci.sources.archive import find_entry, index_archive, open_archive
from envbuild.oci.sources.archive_stream import may_be_layer
from envbuild.oci.sources.kinds import PREFIXES, SOURCES, describe_sources
from envbuild.oci.sources.oci_layout import find_entries
from envbuild.oci.sources.open import SourceReference, open_path, parse_source, split_path
from envbuild.oci.sources.platform import Platform, pick_manifest
from envbuild.oci.sources.registry import parse_source_reference, printable_reference
from tests.support.as_user import open_folder
from tests.support.foreign_projects import BOB

pytestmark = pytest.mark.unit
DIGEST = "0123456789abcdef" * 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_of_another_user_leads_to_files_of_theirs_alone(kind: str) -> None:
    """The bytes of an image get into the store, where others read them."""
    with open_folder() as top:
        (top / "private").mkdir(mode=0o700)
        (top / "private/file").write_bytes(b"")
        (top / "private/folder").mkdir()
        (top / "app").symlink_to(top / "private" / kind)
        request: Any = SimpleNamespace(platform=Platform.of("amd64"), manifest="")
        with pytest.raises(InputError) as caught:
            open_path(str(top / "app"), request).__enter__()
        assert "another user" not in str(caught.value)
        os.chown(top / "app", BOB, -1, follow_symlinks=False)
        with pytest.raises(InputError, match=r"cannot be read: .*user"):
            open_path(str(top / "app"), request)


@pytest.mark.parametrize("name", SOURCES)
def test_a_kind_of_source_has_an_opener_and_a_form(name: str) -> None:
    kind = SOURCES[name]
    assert list(inspect.signature(import_object(kind.opener)).parameters) == ["rest", "request"]
    assert kind.form.startswith(kind.prefixes[0]) and kind.usage.startswith(kind.prefixes[0])
    assert f"  {kind.usage} " in describe_sources()
    assert all(PREFIXES[prefix] == name for prefix in kind.prefixes)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("docker://nvcr.io/nvidia/pytorch:25.10-py3", SourceReference("registry", "nvcr.io/nvidia/pytorch:25.10-py3")),
        ("docker-archive:a.tar:app:1", SourceReference("archive", "a.tar:app:1")),
        ("oci-archive:a.tar", SourceReference("archive", "a.tar")),
        ("oci:dir:tag", SourceReference("layout", "dir:tag")),
        ("docker-daemon:app:1", SourceReference("daemon", "app:1")),
        ("dockerd://app", SourceReference("daemon", "app")),
        ("docker-daemon://app", SourceReference("daemon", "app")),
        ("cpu-ucx", None),
        ("images/cpu-ucx.yaml", None),
        ("./own.yml", None),
    ],
)
def test_forms(text: str, place: SourceReference | None) -> None:
    assert parse_source(text) == place


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("podman://app:1", "podman save -o image.tar app:1"),
        ("containers-storage:app:1", "podman save -o image.tar app:1"),
        ("docker:app:1", "docker://app:1 for a registry, docker-daemon:app:1"),
        ("ubuntu:24.04", "docker://ubuntu:24.04"),
        ("dir:/x", "docker://NAME:TAG"),
        ("docker://", "docker://NAME:TAG"),
        ("oci:", "docker://NAME:TAG"),
    ],
)
def test_other_programs_forms(text: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_source(text)
    assert hint in caught.value.hint and caught.value.exit_code == 2


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "layout").mkdir()
    (tmp_path / "a:b.tar").touch()
    (tmp_path / "x.sqsh").touch()
    monkeypatch.chdir(tmp_path)
    assert parse_source("./layout") == SourceReference("layout", "./layout")
    assert parse_source("./layout:app:1") == SourceReference("layout", "./layout:app:1")
    assert parse_source("./a:b.tar:tag") == SourceReference("archive", "./a:b.tar:tag")
    assert split_path("a:b.tar") == (Path("a:b.tar"), "") and split_path("a:b.tar:c:1") == (Path("a:b.tar"), "c:1")
    with pytest.raises(SpecError, match="is a squashfs file already"):
        parse_source("./x.sqsh")
    with pytest.raises(InputError) as caught:
        parse_source("nvcr.io/nvidia/pytorch:25.10-py3")
    assert caught.value.hint.endswith("docker://nvcr.io/nvidia/pytorch:25.10-py3")
    with pytest.raises(InputError, match="there is no file or folder missing"):
        parse_source("missing.tar")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("debian:13", "docker.io/library/debian:13"),
        ("nvidia/cuda", "docker.io/nvidia/cuda:latest"),
        ("docker.io/debian", "docker.io/library/debian:latest"),
        ("nvcr.io/nvidia/pytorch:25.10-py3", "nvcr.io/nvidia/pytorch:25.10-py3"),
        ("nvcr.io#nvidia/pytorch:25.10-py3", "nvcr.io/nvidia/pytorch:25.10-py3"),
        ("localhost/a/b", "localhost/a/b:latest"),
        ("127.0.0.1:5000#a", "127.0.0.1:5000/a:latest"),
        ("reg:5000/a/b:c", "reg:5000/a/b:c"),
        (f"a/b:c@sha256:{DIGEST}", f"docker.io/a/b@sha256:{DIGEST}"),
    ],
)
def test_references(text: str, name: str) -> None:
    assert printable_reference(parse_source_reference(text)) == name


@pytest.mark.parametrize("text", ["", "UPPER/case", "a b", "reg#", "user@reg#a:1", "a@sha256:12", "a:b:c"])
def test_no_references(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_source_reference(text)
    assert caught.value.hint


def configuration(**changes: Any) -> dict[str, Any]:
    value = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}
    return {**value, **changes}


def read(value: Any, platform: str = "linux/amd64") -> image_documents.SourceConfig:
    return image_documents.read_configuration(json.dumps(value).encode(), "x", Platform.of(platform))


def test_a_configuration() -> None:
    given = {
        "Env": ["A=1", "B=2=3", "A=4", "NOTHING", "E="],
        "Entrypoint": ["/init"],
        "Cmd": "echo old form",
        "WorkingDir": "/w",
        "Labels": {"l": "v"},
        "Volumes": {"/z": {}, "/a": {}},
        "User": "u",
    }
    diff_id = f"sha256:{DIGEST}"
    found = read(configuration(config=given, created="1970-01-01T00:01:00Z", rootfs={"diff_ids": [diff_id]}))
    assert dict(found.config.env) == {"A": "4", "B": "2=3", "E": ""}
    assert found.config.cmd == ("/bin/sh", "-c", "echo old form") and found.config.entrypoint == ("/init",)
    assert found.config.volumes == ("/a", "/z") and found.config.user == "u" and found.config.workdir == "/w"
    assert found.created == 60 and found.diff_ids == (diff_id,)
    assert found.notes == ("ENV 'NOTHING': it has no value, and was left out, as enroot does",)
    none = read(configuration(config=dict.fromkeys(given), created=None))
    assert none.config.cmd == () and none.config.env == {} and none.config.workdir == "/" and none.created == 0
    assert read(configuration(config=None)).config == none.config


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        configuration(config=[1]),
        configuration(config={"Env": "A=1"}),
        configuration(config={"Env": [1]}),
        configuration(config={"Labels": {"a": 1}}),
        configuration(rootfs={}),
        configuration(rootfs={"diff_ids": ["md5:1"]}),
        configuration(created=1),
    ],
)
def test_damaged_configurations(value: Any) -> None:
    with pytest.raises(InputError, match="is damaged"):
        read(value)


def test_platforms() -> None:
    assert Platform.of("linux/arm64") == Platform.of("arm64") == Platform.of("aarch64") == Platform("arm64", "", True)
    assert str(Platform.of("linux/arm/v7")) == "linux/arm/v7" and not Platform.of("").asked
    for text in ("windows/amd64", "linux/", "AMD64"):
        with pytest.raises(SpecError):
            Platform.of(text)


def entry(arch: str, variant: str = "", system: str = "linux", number: int = 0) -> dict[str, Any]:
    platform = {"architecture": arch, "os": system, **({"variant": variant} if variant else {})}
    digest = f"sha256:{number:064x}"
    return {"digest": digest, "size": 1, "mediaType": "x", "platform": platform}


def pick(listed: list[dict[str, Any]], name: str, platform: Platform) -> BlobDescriptor:
    return pick_manifest(Part(listed, "manifests").parts(), name, platform)


def test_one_of_an_index() -> None:
    unknown = entry("unknown", system="unknown", number=9)
    index = [unknown, entry("amd64", number=1), entry("arm", "v6", number=2), entry("arm", "v7", number=3)]
    for text, number in (("amd64", 1), ("linux/arm/v7", 3), ("arm", 2)):
        assert pick(index, "x", Platform.of(text)).digest == f"{number:064x}"
    with pytest.raises(ConflictError) as caught:
        pick(index, "x", Platform.of("arm64"))
    assert caught.value.message == (
        "x has no image for linux/arm64, because it is made for linux/amd64, linux/arm/v6, linux/arm/v7"
    )
    alone = [unknown, entry("s390x", number=5)]
    assert pick(alone, "x", Platform("amd64")).digest == f"{5:064x}"
    with pytest.raises(ConflictError, match="because it is made for linux/s390x"):
        pick(alone, "x", Platform.of("amd64"))
    with pytest.raises(ConflictError, match="because it is made for nothing"):
        pick([unknown], "x", Platform("amd64"))
    with pytest.raises(InputError, match="is damaged"):
        pick([{"platform": {"os": "linux", "architecture": "amd64"}}], "x", Platform("amd64"))


@pytest.mark.parametrize(
    "platform",
    [
        ("x86_64", "", "linux"),
        ("AMD64", "", "linux"),
        ("amd64", "", "Linux"),
        ("amd64", "", ""),
        ("arm64", "8", "linux"),
    ],
)
def test_a_platform_in_another_spelling_is_refused(platform: tuple[str, str, str]) -> None:
    """containerd and Docker take it for the usual one, skopeo does not."""
    with pytest.raises(InputError, match="is not written as in the OCI image spec"):
        pick([entry(*platform, number=1), entry("amd64", number=2)], "x", Platform.of("amd64"))


def test_two_images_of_one_platform_are_refused() -> None:
    """Docker takes the first one, skopeo that without a variant. podman adds the same image in zstd."""
    both = [entry("amd64", "v1", number=1), entry("amd64", number=2)]
    zstd = {**entry("amd64", number=2), "annotations": {"io.github.containers.compression.zstd": "true"}}
    for listed in (both, both[::-1], [entry("amd64", number=1), entry("amd64", number=2)]):
        with pytest.raises(InputError, match="has two images for linux/amd64"):
            pick(listed, "x", Platform.of("amd64"))
    assert pick([entry("amd64", number=1), zstd], "x", Platform.of("amd64")).digest == f"{1:064x}"
    assert pick([both[0], both[0], entry("arm64", number=3)], "x", Platform.of("amd64")).digest == f"{1:064x}"


def test_of_several_entries_the_same_one_is_chosen_as_by_podman() -> None:
    plain, second, third = entry("amd64", number=1), entry("amd64", "v2", number=2), entry("amd64", "v3", number=3)
    unnamed = {key: value for key, value in entry("x", number=4).items() if key != "platform"}
    for listed, text, number in (
        ([second, plain], "", 1),
        ([unnamed, plain], "", 1),
        ([unnamed, second], "", 4),
        ([third, entry("amd64", "v1", number=5)], "amd64", 5),
        ([plain, second, third], "linux/amd64/v3", 3),
        ([entry("arm64", "v9", number=6), entry("arm64", "v8", number=7)], "arm64", 7),
        ([third], "", 3),
    ):
        wanted = Platform.of(text) if text else Platform("amd64")
        assert pick(listed, "x", wanted).digest == f"{number:064x}"
    with pytest.raises(ConflictError, match="because it is made for linux/amd64/v2, linux/amd64/v3"):
        pick([second, third], "x", Platform("amd64"))


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        (ExportOptions("sif"), ["--to 'sif' is not an output"]),
        (ExportOptions("oci", compression="lz4"), ["--compression 'lz4' is unknown"]),
        (ExportOptions("oci", level=3, block="1M", platform="x"), ["--level", "--block", "--platform"]),
        (ExportOptions("docker", keep_owners=True, tag="Bad Tag"), ["--keep-owners", "--tag 'Bad Tag'"]),
        (ExportOptions("squashfs", tag="x:1"), ["--tag has no meaning"]),
    ],
)
def test_options_that_do_not_fit(export: ExportOptions, expected: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        export.check("x")
    findings = [finding.message for finding in caught.value.findings]
    assert len(findings) == len(expected) and all(map(str.startswith, findings, expected))


def test_how_blocks_are_compressed() -> None:
    form = ExportOptions("squashfs").pack_format
    assert (form.codec, form.level, form.block) == ("zstd", 3, 131072)
    form = ExportOptions("squashfs", compression="gzip", block="1m").pack_format
    assert (form.codec, form.level, form.block) == ("gzip", 6, 1 << 20)
    for wrong in (
        ExportOptions("squashfs", compression="lzo"),
        ExportOptions("squashfs", level=23),
        ExportOptions("squashfs", compression="gzip", level=0),
        ExportOptions("squashfs", block="64K"),
    ):
        with pytest.raises(SpecError) as caught:
            _ = wrong.pack_format
        assert caught.value.hint


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


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({"artifactType": "application/x"}, {}),
        ({"platform": {"os": "linux", "architecture": "amd64"}}, {}),
        (
            {"platform": {"os": "linux", "architecture": "amd64"}},
            {"platform": {"os": "linux", "architecture": "amd64"}},
        ),
    ],
)
def test_two_images_of_one_name_in_a_layout_are_refused(first: dict[str, Any], second: dict[str, Any]) -> None:
    """skopeo takes the first one, containerd the last."""
    names = {"annotations": {"org.opencontainers.image.ref.name": "v1"}}

    def index(*changes: dict[str, Any]) -> dict[str, Any]:
        parts = [
            {"digest": f"sha256:{n:064x}", "size": 1, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
            for n in range(len(changes))
        ]
        return {"manifests": [part | names | change for part, change in zip(parts, changes, strict=True)]}

    for pair in ((first, second), (second, first)):
        with pytest.raises(InputError, match="two entries of this name"):
            find_entries(index(*pair), "v1", "oci:x:v1")
    same = index(first, second)
    same["manifests"][1]["digest"] = same["manifests"][0]["digest"]
    other = {"platform": {"os": "linux", "architecture": "arm64"}}
    several = index({"platform": {"os": "linux", "architecture": "amd64"}}, other)
    attested = index(
        {"platform": {"os": "linux", "architecture": "amd64"}},
        *[{"platform": {"os": "unknown", "architecture": "unknown"}}] * 2,
    )
    for item in attested["manifests"]:
        del item["annotations"]
    assert len(find_entries(attested, "", "oci:x")) == 3
    for variant in ("v1", "v3"):
        with pytest.raises(InputError, match="two entries of this name"):
            platform = {"os": "linux", "architecture": "amd64"}
            find_entries(index({"platform": platform}, {"platform": {**platform, "variant": variant}}), "v1", "x")
    for fine in (same, several):
        assert len(find_entries(fine, "v1", "oci:x:v1")) == 2


def test_kinds_of_layers() -> None:
    buffer = io.BytesIO()
    tarfile.open(fileobj=buffer, mode="w").close()
    assert may_be_layer(buffer.getvalue()[:512])
    assert may_be_layer(b"\x1f\x8b" + bytes(10)) and not may_be_layer(b'{"schemaVersion": 2}') and not may_be_layer(b"")


def test_layer_kinds() -> None:
    part = {"digest": f"sha256:{DIGEST}", "size": 1}
    kinds = ["application/vnd.oci.image.layer.v1.tar+zstd", "application/vnd.docker.image.rootfs.diff.tar.gzip"]
    value = {"config": {**part, "mediaType": "x"}, "layers": [{**part, "mediaType": kind} for kind in kinds]}
    assert len(m.read_manifest(value, "x").layers) == 2


def test_progress() -> None:
    assert passed(50_000_000, 0, 10) == "50.0 MB, 5.0 MB/s"
    assert passed(50_000_000, 200_000_000, 10) == "50.0 MB of 200.0 MB, 5.0 MB/s, 30 s left"
    assert passed(200, 200, 10) == "200 B of 200 B, 20 B/s"
    assert [duration(seconds) for seconds in (3, 100, 3900)] == ["3 s", "2 min", "1 h 5 min"]


@pytest.mark.parametrize(("value", "words"), [([""], ()), (["", "x"], ("", "x")), (["/init"], ("/init",)), (None, ())])
def test_an_entrypoint_of_one_empty_word_is_none(value: object, words: tuple[str, ...]) -> None:
    """A Dockerfile drops the entrypoint of its base so."""
    assert image_documents.parse_entrypoint(Part(value)) == words


def test_a_list_of_images_has_its_keys_in_their_letters() -> None:
    """Docker and podman take the last of both."""
    content = b'[{"Config": "a.json", "config": "b.json", "RepoTags": ["app:1"], "Layers": []}]'
    with pytest.raises(InputError, match="which other clients read as Config"):
        find_entry(content, "", "docker-archive:a.tar")


def test_a_login_in_a_source_of_another_form_is_not_printed() -> None:
    with pytest.raises(SpecError) as caught:
        parse_source("https://bob:hush@localhost/x.tar")
    assert "https://localhost/x.tar" in str(caught.value) and "hush" not in str(caught.value)


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
