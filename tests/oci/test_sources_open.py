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

from envbuild.core.errors import InputError, SpecError
from envbuild.core.late_import import import_object
from envbuild.core.text import duration, passed
from envbuild.export.options import ExportOptions
from envbuild.oci import manifest as m
from envbuild.oci.document import Part
from envbuild.oci.sources import image_documents
from envbuild.oci.sources.archive_stream import may_be_layer
from envbuild.oci.sources.kinds import PREFIXES, SOURCES, describe_sources
from envbuild.oci.sources.open import SourceReference, open_path, parse_source, split_path
from envbuild.oci.sources.platform import Platform
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


def test_a_login_in_a_source_of_another_form_is_not_printed() -> None:
    with pytest.raises(SpecError) as caught:
        parse_source("https://bob:hush@localhost/x.tar")
    assert "https://localhost/x.tar" in str(caught.value) and "hush" not in str(caught.value)
