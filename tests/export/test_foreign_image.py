"""Conversion of a third-party image: its content, its evidence, and a second run without a change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError, SpecError
from envbuild.core.store.records import write_record
from envbuild.export.artifact_link import link_by_name
from envbuild.export.export import export_foreign
from envbuild.export.options import ExportOptions
from envbuild.export.output_path import Output
from envbuild.squashfs.read.tree import SquashTree
from tests.support import foreign_images as kit
from tests.support.foreign_images import made, workspace
from tests.support.local_registry import Layout, file, folder, sha256, tar

pytestmark = pytest.mark.unit
# Values that another member of a group's store may write into a record.
HOSTILE = [("size", 10**400), ("size", -1), ("reference", "oci\nhint: x"), ("sha256", "\ud800"), ("sha256", "a\nb")]
OLD = file("opt/old", b"1")
OLD[0].mtime = -5


def evidence(path: Path) -> dict[str, Any]:
    with SquashTree(path) as tree:
        value: dict[str, Any] = json.loads(tree.read(b"etc/envbuild/export.json") or b"")
        return value


@pytest.fixture
def source(tmp_path: Path) -> str:
    layout = Layout(tmp_path / "layout")
    layout.add(kit.image(layout, [*kit.layers(), tar(folder("opt"), OLD)]))
    return f"oci:{layout.path}"


def test_the_evidence_names_content_and_repairs(source: str, tmp_path: Path) -> None:
    at = workspace(tmp_path / "store")
    done = made(source, at)
    found = evidence(done.artifact.path)
    assert found["image"] == {
        "config": done.identity,
        "architecture": "amd64",
        "created": 1_759_276_800,
        "layers": [layer.diff_id for layer in done.layers],
    }
    assert found["compression"]["codec"] == "zstd" and found["options"] == {"keep_owners": False}
    assert found["repairs"] == list(done.artifact.messages)[len(found["notes"]) :]
    moved = [line for line in done.artifact.messages if "1970" in line]
    assert len(moved) == 1 and "(opt/old)" in moved[0]
    assert isinstance(at.reporter, SilentReporter)
    assert [f"  {line}" for line in done.artifact.messages] == at.reporter.lines[-len(done.artifact.messages) - 1 : -1]
    assert done.artifact.path.name in at.reporter.lines[-1]


def test_the_link_of_a_project_image_remains(source: str, tmp_path: Path) -> None:
    """Job scripts name NAME.sqsh: a third-party image of that name does not take its place, from any folder."""
    at = workspace(tmp_path / "store")
    done = made(source, at)
    own = done.artifact.path.with_name("layout-0123456789ab.sqsh")
    own.write_bytes(b"own")
    record = {"artifact": str(own), "layers": [], "lock": "sha256:1"}
    write_record(at.store.root / "images" / "own.json", record)
    link_by_name(own, "layout")
    again = made(source, at)
    assert own.with_name("layout.sqsh").resolve() == own
    assert own.with_name("layout-image.sqsh").resolve() == again.artifact.path


def test_the_file_of_an_export_has_what_the_umask_leaves(source: str, tmp_path: Path) -> None:
    """A private image in a folder that all may enter."""
    at, before = workspace(tmp_path / "store"), os.umask(0o077)
    try:
        made(source, at, tmp_path / "packed.sqsh")
        made(source, at, tmp_path / "direct.sqsh", cache=False)
    finally:
        os.umask(before)
    for name in ("packed", "direct"):
        assert (tmp_path / f"{name}.sqsh").stat().st_mode & 0o777 == 0o600
    made(source, at, tmp_path / "packed.sqsh")
    assert (tmp_path / "packed.sqsh").stat().st_mode & 0o777 == 0o666 & ~before & 0o644


@pytest.mark.slow_unit
@pytest.mark.parametrize("value", [{"made": 3}, [], {"made": {"artifact": "x"}}, "drop sha256", *HOSTILE])
def test_any_json_in_the_record_of_an_export_is_no_record(value: object, source: str, tmp_path: Path) -> None:
    at = workspace(tmp_path / "store")
    first = made(source, at)
    (record,) = (at.store.root / "images").iterdir()
    if value == "drop sha256":
        found = json.loads(record.read_text())
        del found["made"]["sha256"]
        value = found
    if isinstance(value, tuple):
        found = json.loads(record.read_text())
        found["made"][value[0]] = value[1]
        value = found
    record.write_text(json.dumps(value))
    again = made(source, at)
    assert not again.up_to_date and again.artifact.sha256 == first.artifact.sha256
    assert made(source, at).up_to_date


def test_files_that_the_export_replaces_have_no_findings(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    replaced = file("etc/rc", b"old")
    replaced[0].mtime = -5
    layout.add(kit.image(layout, [tar(folder("etc"), replaced), *kit.layers()]))
    done = made(f"oci:{layout.path}", workspace(tmp_path / "store"))
    assert not [line for line in done.artifact.messages if "1970" in line]


def test_a_second_run_writes_nothing(source: str, tmp_path: Path) -> None:
    at = workspace(tmp_path / "store")
    first = made(source, at, sha256=False)
    assert not first.up_to_date and first.artifact.sha256 == ""
    again = made(source, at)
    assert again.up_to_date and again.artifact.sha256 == sha256(first.artifact.path.read_bytes())
    assert (again.identity, again.artifact.messages) == (first.identity, first.artifact.messages)
    assert [layer.diff_id for layer in again.layers] == [layer.diff_id for layer in first.layers]
    link = at.store.root / "artifacts/layout.sqsh"
    assert link.resolve() == first.artifact.path and first.identity[7:19] in first.artifact.path.name
    assert not made(source, at, keep_owners=True).up_to_date
    first.artifact.path.write_bytes(b"changed")
    assert not made(source, at).up_to_date


def test_a_file_that_a_member_of_a_group_replaced_is_written_again(source: str, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(0o3775)
    at = workspace(tmp_path / "store")
    first = made(source, at).artifact
    assert made(source, at).up_to_date
    status, content = first.path.stat(), bytearray(first.path.read_bytes())
    content[len(content) // 2] ^= 1
    first.path.write_bytes(content)
    os.utime(first.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not made(source, at).up_to_date and sha256(first.path.read_bytes()) == first.sha256


def test_an_image_without_layers(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    layout.add(kit.image(layout, []))
    with pytest.raises(InputError):
        made(f"oci:{layout.path}", workspace(tmp_path / "store"))


def test_the_answer_for_scripts(source: str, tmp_path: Path) -> None:
    at, out = workspace(tmp_path / "store"), tmp_path / "out.sqsh"
    result = export_foreign(source, ExportOptions(output=Output(out), sha256=True), at)
    data = dict(result.data)
    assert data.pop("seconds") >= 0 and data.pop("config").startswith("sha256:")
    assert data.pop("repairs") and [layer["cached"] for layer in data.pop("layers")] == [False] * 4
    assert data == {
        "source": source,
        "origin": data["origin"],
        "path": str(out),
        "sha256": sha256(out.read_bytes()),
        "size": out.stat().st_size,
        "up_to_date": False,
    }
    assert "4 layers packed, 0 packed before" in result.text
    again = export_foreign(source, ExportOptions(output=Output(tmp_path / "two.sqsh")), at)
    assert "0 layers packed, 4 packed before" in again.text
    with pytest.raises(SpecError) as caught:
        export_foreign(source, ExportOptions(to="oci", output=Output(out)), at)
    assert caught.value.hint.startswith("--to squashfs")
