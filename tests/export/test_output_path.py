"""The destination of an export: a file or a folder, and never the image that is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.cli.write_report import write_report
from envbuild.core.errors import PublishError, SpecError
from envbuild.export.output_path import Output, is_source

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("text", ["", "-"])
def test_an_image_needs_a_file(text: str) -> None:
    with pytest.raises(SpecError):
        Output.of(text)


@pytest.mark.parametrize(
    ("text", "name"), [("new.sqsh", "new.sqsh"), ("new/", "new/own"), ("new/.", "new/own"), ("there", "there/own")]
)
def test_a_folder_receives_a_file_with_the_images_own_name(
    text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    output = Output.of(text)
    output.prepare("docker://app:1")
    assert output.file("own") == Path(name)
    assert (tmp_path / name).parent.is_dir() and not (tmp_path / name).exists()
    assert Output.of(".").file("own") == Path("own")


def test_a_file_replaces_files_only(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "file").touch()
    assert Output(tmp_path / "file").file("own") == tmp_path / "file"
    for output in (Output(tmp_path), Output(Path("/dev/null")), Output(Path("/dev/new"))):
        with pytest.raises(SpecError):
            output.file("own")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_a_link_of_another_user_is_not_a_folder_to_write_into(tmp_path: Path) -> None:
    """That user would choose where the file gets."""
    (tmp_path / "prod").mkdir()
    (tmp_path / "prod/report.html").write_text("important")
    for name, user in (("theirs", 54_321), ("own", os.geteuid())):
        (tmp_path / name).symlink_to(tmp_path / "prod")
        os.chown(tmp_path / name, user, user, follow_symlinks=False)
    with pytest.raises(SpecError, match="is another user's link to a folder"):
        Output(tmp_path / "theirs").prepare("docker://app:1")
    assert Output(tmp_path / "own").file("x") == tmp_path / "own/x"
    assert Output.of(f"{tmp_path}/theirs/").file("x") == tmp_path / "theirs/x"  # named as a folder
    assert write_report(str(tmp_path / "theirs"), "report.html", "new") == tmp_path / "theirs"
    assert (tmp_path / "prod/report.html").read_text() == "important"


def test_the_image_itself_is_not_replaced(tmp_path: Path) -> None:
    archive, layout = tmp_path / "app.tar", tmp_path / "layout"
    archive.touch()
    (layout / "blobs").mkdir(parents=True)
    for output, source in (
        (archive, f"docker-archive:{archive}:app:1"),
        (layout / "index.json", f"oci:{layout}"),
        (layout / "blobs/x.sqsh", f"oci:{layout}:app"),
        (layout / "blobs", f"oci:{layout}"),
    ):
        with pytest.raises(SpecError):
            Output(output).prepare(source)
    for output, source in (
        (tmp_path / "other.tar", f"docker-archive:{archive}"),
        (layout / "image.sqsh", f"oci:{layout}"),
        (layout, f"oci:{layout}"),
        (archive, "docker://app"),
        (archive, "cpu-ucx"),
    ):
        Output(output).prepare(source)
    assert not is_source(archive, f"oci:{layout}")


def test_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, folder in ((tmp_path / "file/x.sqsh", False), (tmp_path / "file/deep", True)):
        with pytest.raises(PublishError):
            Output(path, folder).prepare("docker://app")
