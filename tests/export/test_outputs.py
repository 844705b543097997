"""Every output format writes a built image, and its progress is recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from envbuild.build.engines.base import BuildResult
from envbuild.core.console import SilentReporter
from envbuild.core.errors import PublishError
from envbuild.core.result import Result
from envbuild.core.store.store import Store
from envbuild.export.built_image import BuiltImage, ImageRecord
from envbuild.export.export import prepare_output, write_output
from envbuild.export.options import ExportOptions
from envbuild.export.output_path import Output
from envbuild.export.progress import PACKING, track_export
from envbuild.export.progress_list import list_exports
from envbuild.export.project_image import write_artifact
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.write import copy_extents
from tests.support.foreign_images import workspace
from tests.support.small_plan import small_plan
from tests.support.stored_inputs import lock
from tests.support.stored_layers import files, layer

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(os.geteuid() != 0, reason="layers that were made outside of a user namespace are read by root"),
]


def fill_root(tree: Path) -> None:
    """Write the files that enroot needs."""
    for name in ("bin/sh", "etc/passwd"):
        (tree / name).parent.mkdir()
        (tree / name).write_text("x")
        (tree / name).chmod(0o755)


@pytest.fixture
def at(tmp_path: Path) -> Workspace:
    return workspace(tmp_path / "store")


@pytest.fixture
def image(at: Workspace) -> BuiltImage:
    store: Store = at.store
    base = layer(store, "base", fill_root)
    layers = (base, layer(store, "glue", files(two="2\n"), [base]))
    plan, locked = small_plan(), lock()
    made = write_artifact(plan, BuildResult("embedded", layers, (), ()), locked, store, SilentReporter())
    record = ImageRecord(
        image=plan.image,
        artifact=str(made.path),
        sha256=made.sha256,
        lock="",
        engine="embedded",
        messages=made.messages,
        evidence="",
        layers=(),
        built=(),
        reused=(),
        seconds=0.0,
    )
    return BuiltImage(cast(Any, None), locked, plan, record, layers, cast(Any, None))


def export(image: BuiltImage, at: Workspace, options: ExportOptions) -> Result:
    options.check(image.plan.image)
    prepare_output(options, image.plan.image)
    with track_export(image.plan.image, None, at, PACKING) as progress:
        return write_output(image, options, progress)


def test_a_squashfs_file_is_the_one_of_make_or_has_another_compression(
    image: BuiltImage, at: Workspace, tmp_path: Path
) -> None:
    own = Path(image.record.artifact)
    assert export(image, at, ExportOptions()).data["path"] == str(own)
    before = os.umask(0o027)
    try:
        copy = export(image, at, ExportOptions(output=Output.of(str(tmp_path / "copy.sqsh")))).data
    finally:
        os.umask(before)
    assert Path(copy["path"]).stat().st_mode & 0o777 == 0o640
    assert Path(copy["path"]).read_bytes() == own.read_bytes()
    assert copy["sha256"] == image.record.sha256 and len(copy["layers"]) == 2
    other = export(image, at, ExportOptions(compression="gzip", output=Output.of(f"{tmp_path}/new/")))
    assert other.data["path"] == f"{tmp_path}/new/{own.stem}-gzip6.sqsh"
    assert other.text.startswith(f"{other.data['path']}\n")
    rows = list_exports(at.store.root).data["exports"]
    assert {row["output"] for row in rows} == {other.data["path"], copy["path"]}  # nothing was written for the first
    assert {row["state"] for row in rows} == {"done"}


def test_a_layout_is_a_folder(image: BuiltImage, at: Workspace, tmp_path: Path) -> None:
    done = export(image, at, ExportOptions("oci", output=Output.of(str(tmp_path / "layout"))))
    assert (tmp_path / "layout/index.json").is_file()
    assert done.data["manifest"].startswith("sha256:") and done.data["path"] == str(tmp_path / "layout")
    own = export(image, at, ExportOptions("oci", compression="none")).data
    assert own["config"] == done.data["config"] and own["manifest"] != done.data["manifest"]
    assert Path(own["path"]).parent == at.store.root / "artifacts"
    (tmp_path / "other").mkdir()
    (tmp_path / "other/mine").touch()
    with pytest.raises(PublishError):
        prepare_output(ExportOptions("oci", output=Output.of(str(tmp_path / "other"))), "image")


def test_the_docker_engine_gets_a_reference(image: BuiltImage, at: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    from envbuild.export import docker_output

    loaded: list[str] = []

    def load_image(*_: object, reference: str, **__: object) -> str:
        loaded.append(reference)
        return "sha256:1"

    monkeypatch.setattr(docker_output, "load_image", load_image)
    assert export(image, at, ExportOptions("docker", tag="app:1")).data == {"reference": "app:1", "id": "sha256:1"}
    export(image, at, ExportOptions("docker"))
    assert loaded[0] == "app:1" and loaded[1].startswith(f"{image.plan.image}:")


def test_a_link_in_the_place_of_the_copy_changes_no_other_file(
    image: BuiltImage, at: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another user makes it who can write the folder."""
    secret, out = tmp_path / "secret", tmp_path / "shared/copy.sqsh"
    secret.touch(0o600)
    out.parent.mkdir()
    copy_file = copy_extents.copy_file

    def copy_and_replace(path: Path, file: int) -> None:
        copy_file(path, file)
        (unfinished,) = out.parent.glob(".copy.sqsh.*")
        unfinished.unlink()
        unfinished.symlink_to(secret)

    monkeypatch.setattr(copy_extents, "copy_file", copy_and_replace)
    with pytest.raises(PublishError, match="another user replaced the file"):
        export(image, at, ExportOptions(output=Output.of(str(out))))
    assert secret.stat().st_mode & 0o777 == 0o600
