"""Signed images of a layout that other users can write: what is converted is what was compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import InputError, VerifyError
from envbuild.export.export import export_foreign
from envbuild.export.options import ExportOptions
from envbuild.export.output_path import Output
from envbuild.publish import pull
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.pull import pull_image
from tests.support.foreign_images import image, layers, workspace
from tests.support.local_registry import Layout
from tests.support.published import publish_folder
from tests.support.pulls import MORE, digest
from tests.support.signed_images import Keys, signature
from tests.support.signing import requiring

pytestmark = pytest.mark.unit


def parts_of(folder: Path, *contents: bytes, **changes: Any) -> ImageParts:
    """Return an image whose manifest names no squashfs file."""
    layout = Layout(folder)
    layout.add(image(layout, contents, **changes), "x")
    return ImageParts.read(folder)


@pytest.fixture
def shared(tmp_path: Path, team: Keys) -> tuple[Path, ImageParts]:
    """Return a layout with the signed image `1`, and that image."""
    parts = parts_of(tmp_path / "a", *layers())
    publish_folder(parts, [signature(parts, team[0], tmp_path / "s")], tmp_path / "shared", "1")
    return tmp_path / "shared", parts


@pytest.fixture
def move(tmp_path: Path, shared: tuple[Path, ImageParts], monkeypatch: pytest.MonkeyPatch) -> ImageParts:
    """Let the tag name another image between the comparison and the conversion; return that image."""
    other, convert = parts_of(tmp_path / "e", *layers(), MORE), pull.convert

    def late(*arguments: Any, **options: Any) -> Any:
        publish_folder(other, [], shared[0], "1")
        return convert(*arguments, **options)

    monkeypatch.setattr(pull, "convert", late)
    return other


def test_the_compared_image_is_converted_after_its_tag_moved(
    tmp_path: Path, team: Keys, shared: tuple[Path, ImageParts], move: ImageParts
) -> None:
    out = tmp_path / "final.sqsh"
    export_foreign(
        f"oci:{tmp_path}/a:x", ExportOptions(output=Output(tmp_path / "right.sqsh")), workspace(tmp_path / "c")
    )
    at = requiring(tmp_path / "b", team[1])
    found = pull_image(f"oci:{shared[0]}:1", Output(out), at).data
    assert shared[1].digest in found["origin"] and digest(out) == digest(tmp_path / "right.sqsh")
    assert found["signed_by"] == [str(team[1])]


def test_a_file_remains_where_the_compared_image_is_gone(
    tmp_path: Path, team: Keys, shared: tuple[Path, ImageParts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that of an earlier pull, which jobs start."""
    out, at = tmp_path / "final.sqsh", requiring(tmp_path / "b", team[1])
    before = pull_image(f"oci:{shared[0]}:1", Output(out), at).data["sha256"]
    convert = pull.convert

    def late(*arguments: Any, **options: Any) -> Any:
        publish_folder(parts_of(tmp_path / "e", *layers(), MORE), [], shared[0], "1")
        (shared[0] / "blobs/sha256" / shared[1].digest.removeprefix("sha256:")).unlink()
        return convert(*arguments, **options)

    monkeypatch.setattr(pull, "convert", late)
    with pytest.raises(InputError):
        pull_image(f"oci:{shared[0]}:1", Output(out), at)
    assert digest(out) == before


def test_the_file_of_a_manifest_with_the_same_content_remains(
    tmp_path: Path, team: Keys, shared: tuple[Path, ImageParts]
) -> None:
    """Two manifests that differ in an annotation have one configuration, and so one file in the store."""
    other = shared[1].annotate({"org.example.note": "unsigned"})
    publish_folder(other, [], tmp_path / "shared", "2")
    at = requiring(tmp_path / "b", team[1])
    open_at = replace(at, site=replace(at.site, signatures=None))
    publish_folder(other, [], tmp_path / "other/shared", "1")  # with the same name of its file
    first = pull_image(f"oci:{tmp_path}/other/shared:1", None, open_at).data
    found = pull_image(f"oci:{shared[0]}:1", None, at).data
    assert first["path"] == found["path"] and digest(found["path"]) == found["sha256"]
    assert other.digest in first["origin"] and shared[1].digest in found["origin"]
    assert found["signed_by"] == [str(team[1])] and found["source"] == f"oci:{shared[0]}:1"


def test_nothing_is_written_of_an_image_with_another_manifest(tmp_path: Path) -> None:
    """An archive has no manifest at all."""
    parts_of(tmp_path / "a", *layers())
    at, out = workspace(tmp_path / "b"), Output(tmp_path / "out.sqsh")
    with pytest.raises(InputError):
        export_foreign(f"oci:{tmp_path}/a", ExportOptions(output=out, manifest=f"sha256:{'0' * 64}"), at)
    archive = tmp_path / "a.tar"
    import tarfile

    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "a", ".")
    with pytest.raises(VerifyError, match="was changed after it was compared"):
        export_foreign(f"oci-archive:{archive}", ExportOptions(output=out, manifest=f"sha256:{'0' * 64}"), at)
    assert not out.path.exists()
